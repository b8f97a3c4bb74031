"""Our rollout and update against TRL's own GRPOTrainer: same model, prompts, lengths and optimiser.

Both sides take turns in one process with the same number of threads; CPU seconds of all threads are
counted. TRL runs with its defaults except where they would slow it down on a CPU: fp32 instead of
bf16, no gradient checkpointing. A completion's length is planned, so that both sides write equally
many tokens: TRL gets its end-of-sequence token forced there, ours ends by the request's limit.

    python benchmarks/grpo_vs_trl.py [--quick] [--threads N]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from agents.types import Generation, GenerationRequest
from trainer.engine import LocalEngine
from trainer.generate.hf import HFPolicy, Sampling
from trainer.loss import LossConfig
from trainer.rollout import generate_all
from trainer.types import TrainSample
from trainer.update import UpdateConfig, Updater

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "grpo_vs_trl.json"
VOCABULARY, GROUP, PROMPT_TOKENS, EOS = 8192, 8, 64, 0
LEARNING_RATE, MAX_GRAD_NORM = 1e-6, 1.0
MICRO_BATCH_TOKENS = 2048
"""Rows of like length share a micro-batch, and its activations stay in the CPU's caches."""


@dataclass(frozen=True)
class Setting:
    """A batch: ``groups`` of 8 completions, each between ``shortest`` and ``longest`` tokens."""

    name: str
    groups: int
    shortest: int
    longest: int = 64

    @property
    def rows(self) -> int:
        return self.groups * GROUP


WARM_UP = Setting("warm-up", 1, 4, 4)
SETTINGS = (Setting("one group, 64 tokens", 1, 64), Setting("eight groups, 8-64 tokens", 8, 8))


@dataclass(frozen=True)
class Run:
    """One step of one side: tokens written, CPU and wall seconds."""

    setting: str
    side: str
    step: int
    tokens: int
    rollout_cpu: float
    rollout_wall: float
    update_cpu: float
    update_wall: float


class Meter:
    """CPU and wall seconds by name; nested measurements count for the inner name only."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._inner: list[list[float]] = []

    def wrap(self, owner: Any, method: str, name: str) -> None:
        """Measure every call of ``owner.method`` as ``name``."""
        setattr(owner, method, self.timed(name, getattr(owner, method)))

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            self._inner.append([0.0, 0.0])
            cpu, wall = time.process_time(), time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = [time.process_time() - cpu, time.perf_counter() - wall]
                inner = self._inner.pop()
                for i in range(2):
                    self.seconds[name][i] += spent[i] - inner[i]
                    if self._inner:
                        self._inner[-1][i] += spent[i]

        return measured

    def run(self, setting: str, side: str, step: int, tokens: int) -> Run:
        """What was measured since the last call."""
        rollout, update = self.seconds["rollout"], self.seconds["update"]
        self.seconds.clear()
        return Run(setting, side, step, tokens, *rollout, *update)


def model_and_tokenizer() -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Qwen2 of 4 layers x 256 with a vocabulary of 8192 words."""
    words = {"<eos>": EOS} | {f"w{i}": i for i in range(1, VOCABULARY)}
    core = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<eos>",
        pad_token="<eos>",
        chat_template="{% for m in messages %}{{ m.content }}<eos>{% endfor %}",
    )
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    return Qwen2ForCausalLM(config), tokenizer


def planned(setting: Setting, step: int) -> tuple[list[str], list[int]]:
    """Prompts (one a group) and the lengths of all completions of one step."""
    draws = random.Random(f"{setting.name}:{step}")
    prompts = [
        " ".join(f"w{draws.randrange(1, VOCABULARY)}" for _ in range(PROMPT_TOKENS))
        for _ in range(setting.groups)
    ]
    return prompts, [draws.randint(setting.shortest, setting.longest) for _ in range(setting.rows)]


def rewards(rows: int, step: int) -> list[float]:
    """Rewards that differ inside every group."""
    draws = random.Random(step)
    return [draws.random() for _ in range(rows)]


class OurSide:
    """Rollout by `HFPolicy`, update by `Updater`."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.meter = setting, Meter()
        self.model, self.tokenizer = model_and_tokenizer()
        self.policy = HFPolicy(self.model, self.tokenizer, Sampling(max_batch=setting.rows))
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)
        self.updater = Updater(
            self.model,
            optimizer,
            LocalEngine(),
            LossConfig(aggregation="token_mean"),
            UpdateConfig(max_tokens=MICRO_BATCH_TOKENS, max_grad_norm=MAX_GRAD_NORM),
        )

    def step(self, step: int) -> Run:
        prompts, lengths = planned(self.setting, step)
        asked = [
            GenerationRequest(
                tuple(self.tokenizer.encode(prompts[i // GROUP])), "benchmark", length, step * 1000 + i
            )
            for i, length in enumerate(lengths)
        ]
        got = self.meter.timed("rollout", generate_all)(self.policy, asked)
        self.meter.timed("update", self.update)(asked, got, rewards(self.setting.rows, step))
        self.policy.version += 1
        return self.meter.run(self.setting.name, "ours", step, sum(len(g.token_ids) for g in got))

    def update(
        self, asked: Sequence[GenerationRequest], got: Sequence[Generation], scores: Sequence[float]
    ) -> None:
        rewards_GI = torch.tensor(scores).view(-1, GROUP)
        centred_GI = rewards_GI - rewards_GI.mean(-1, keepdim=True)
        advantages = (centred_GI / (rewards_GI.std(-1, keepdim=True) + 1e-4)).flatten().tolist()
        samples = [
            TrainSample(
                input_ids=request.prompt_ids + generation.token_ids,
                loss_mask=(0,) * len(request.prompt_ids) + (1,) * len(generation.token_ids),
                behaviour_logprobs=(0.0,) * len(request.prompt_ids) + generation.logprobs,
                advantages=(0.0,) * len(request.prompt_ids) + (advantage,) * len(generation.token_ids),
                policy_version=generation.policy_version,
                trajectory_id=str(i),
            )
            for i, (request, generation, advantage) in enumerate(zip(asked, got, advantages, strict=True))
        ]
        self.updater.update(samples)


class StopAsPlanned:
    """Logits processor: the end-of-sequence token at the planned position of each row, never before."""

    def __init__(self, prompt_length: int, lengths: Sequence[int]) -> None:
        self.prompt_length = prompt_length
        self.lengths = torch.tensor(lengths)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, EOS] = -torch.inf
        last = self.lengths == input_ids.shape[1] - self.prompt_length + 1
        if last.any():
            scores[last] = -torch.inf
            scores[last, EOS] = 0.0
        return scores


class TrlSide(TrainerCallback):  # type: ignore[misc]
    """TRL's GRPOTrainer; after each of its steps ours takes one (``between``)."""

    def __init__(
        self, setting: Setting, steps: int, folder: str, between: Callable[[int, Run], None]
    ) -> None:
        self.setting, self.meter, self.between = setting, Meter(), between
        self.made, self.tokens = 0, 0
        self.model, tokenizer = model_and_tokenizer()
        prompts = [prompt for step in range(steps) for prompt in planned(setting, step)[0]]
        per_device = min(setting.rows, GROUP)
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=per_device,
            gradient_accumulation_steps=setting.rows // per_device,
            num_generations=GROUP,
            max_completion_length=setting.longest,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            max_grad_norm=MAX_GRAD_NORM,
            max_steps=steps,
            shuffle_dataset=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=10**6,
        )
        self.trainer = GRPOTrainer(
            model=self.model,
            reward_funcs=self.reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
            callbacks=[self],
        )
        self.plain_generate = self.model.generate
        self.model.generate = self.generate
        self.meter.wrap(self.trainer, "_generate_single_turn", "rollout")
        # Tokenising, decoding and rewards belong to neither figure.
        self.meter.wrap(self.trainer, "_prepare_inputs", "other")
        self.meter.wrap(self.trainer, "training_step", "update")
        self.meter.wrap(self.trainer.accelerator, "clip_grad_norm_", "update")
        self.trainer.create_optimizer()
        self.meter.wrap(self.trainer.optimizer, "step", "update")

    def train(self) -> None:
        self.trainer.train()

    def generate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        _, lengths = planned(self.setting, self.made)
        self.tokens = sum(lengths)
        stop = StopAsPlanned(kwargs["input_ids"].shape[1], lengths)
        output: torch.Tensor = self.plain_generate(*args, logits_processor=[stop], **kwargs)
        return output

    def reward(self, completions: Sequence[str], **columns: Any) -> list[float]:
        return rewards(len(completions), self.made)

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        run = self.meter.run(self.setting.name, "trl", self.made, self.tokens)
        self.made += 1
        self.between(run.step, run)


def alternate(setting: Setting, steps: int, warmup: int) -> list[Run]:
    """Steps of both sides in turn, of which the first ``warmup`` of each are left out."""
    ours = OurSide(setting)
    runs: list[Run] = []

    def between(step: int, theirs: Run) -> None:
        own = ours.step(step)
        if theirs.tokens != own.tokens:
            raise RuntimeError(f"TRL wrote {theirs.tokens} tokens, ours {own.tokens}; the plan was broken")
        if step >= warmup:
            runs.extend((theirs, own))

    with tempfile.TemporaryDirectory() as folder:
        TrlSide(setting, steps + warmup, folder, between).train()
    return runs


def speed(runs: Sequence[Run], setting: Setting, side: str, part: str) -> float:
    """Median tokens per CPU second of one part over the steps of one side."""
    mine = [run for run in runs if (run.setting, run.side) == (setting.name, side)]
    return statistics.median(run.tokens / getattr(run, f"{part}_cpu") for run in mine)


def main() -> None:
    """Run the settings, write the result unless ``--quick``, print the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one step of the second setting, write nothing")
    parser.add_argument("--threads", type=int, default=1, help="threads of both sides (default 1)")
    parser.add_argument("--steps", type=int, default=8, help="counted steps of each side (default 8)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    runs: list[Run] = []
    figures: dict[str, tuple[float, str, str]] = {}
    if options.quick:
        alternate(WARM_UP, 1, warmup=0)
    for setting in SETTINGS[1:] if options.quick else SETTINGS:
        runs += alternate(setting, 1, 0) if options.quick else alternate(setting, options.steps, 1)
        for part, target in (("rollout", ">= 3"), ("update", ">= 2")):
            trl, ours = (speed(runs, setting, side, part) for side in ("trl", "ours"))
            print(
                f"{setting.name}: {part:7} tokens per CPU second: TRL {trl:7.0f}, ours {ours:7.0f}, "
                f"ratio {ours / trl:.2f}",
                flush=True,
            )
            figures[f"{part}_ratio"] = (ours / trl, "x", target)
    if not options.quick:
        write(runs, figures, f"--threads {options.threads} --steps {options.steps}")
    for name, (value, unit, target) in figures.items():
        print(f"FIGURE {name} {value:.4g} {unit} target {target}")


def write(runs: Sequence[Run], figures: dict[str, tuple[float, str, str]], options: str) -> None:
    """The result file: figures of the last setting, versions, machine, every run."""
    packages = ("torch", "transformers", "trl", "accelerate")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(
        json.dumps(
            {
                "command": f"python benchmarks/grpo_vs_trl.py {options}",
                "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()},
                "versions": {"python": platform.python_version()}
                | {name: importlib.metadata.version(name) for name in packages},
                "figures": {
                    name: {"value": value, "unit": unit, "target": target}
                    for name, (value, unit, target) in figures.items()
                },
                "runs": [asdict(run) for run in runs],
            },
            indent=1,
        )
        + "\n"
    )


def cpu_name() -> str:
    """The processor's name as Linux states it."""
    path = Path("/proc/cpuinfo")
    names = (
        [line for line in path.read_text().splitlines() if line.startswith("model name")]
        if path.exists()
        else []
    )
    return names[0].partition(":")[2].strip() if names else platform.processor()


if __name__ == "__main__":
    main()
