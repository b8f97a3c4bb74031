"""Loss and gradient equal TRL's GRPOTrainer on random batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from trainer.logprobs import token_logprobs
from trainer.loss import LossConfig, local_totals, policy_loss, row_weights
from trainer.samples import micro_batches
from trainer.types import TrainSample

trl = pytest.importorskip("trl", reason="parity with TRL needs the extra [dev]: pip install 'memgrpo[dev]'")

VOCABULARY = 97
MAX_COMPLETION = 24


@dataclass(frozen=True)
class Row:
    """A row as TRL sees it: prompt, completion, and which completion tokens the policy wrote."""

    prompt: Tensor
    completion: Tensor
    written: Tensor
    advantages: Tensor
    old: Tensor
    sampler: Tensor
    reference: Tensor


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )
    words = {"<pad>": 0, "<eos>": 1} | {f"w{i}": i for i in range(2, VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), pad_token="<pad>", eos_token="<eos>"
    )
    return trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp("trl")),
            report_to="none",
            use_cpu=True,
            bf16=False,
            num_generations=2,
            steps_per_generation=1,
            per_device_train_batch_size=2,
            max_completion_length=MAX_COMPLETION,
            temperature=0.7,
        ),
        train_dataset=Dataset.from_list([{"prompt": "w2 w3"}] * 2),
        processing_class=tokenizer,
    )


def random_rows(model: Any, seed: int, count: int = 6) -> list[Row]:
    """Ragged rows with holes in the completion; log-probs near the model's own, so that ratios are near 1."""
    draw = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=draw))

    rows = []
    for _ in range(count):
        prompt = torch.randint(2, VOCABULARY, (integer(1, 9),), generator=draw)
        completion = torch.randint(2, VOCABULARY, (integer(2, MAX_COMPLETION + 1),), generator=draw)
        n = len(completion)
        written = torch.rand(n, generator=draw) < 0.8
        written[0] = True
        with torch.no_grad():
            logits = model(input_ids=torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
        own = torch.log_softmax(logits / 0.7, -1).gather(-1, completion[:, None])[:, 0]
        noise = [own + 0.3 * torch.randn(n, generator=draw) for _ in range(3)]
        rows.append(Row(prompt, completion, written, torch.randn(n, generator=draw), *noise))
    return rows


def trl_loss(trainer: Any, rows: list[Row]) -> Tensor:
    def right(values: list[Tensor]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)

    def left(values: list[Tensor]) -> Tensor:
        return right([value.flip(0) for value in values]).flip(1)

    old, sampler = right([r.old for r in rows]), right([r.sampler for r in rows])
    inputs = {
        "prompt_ids": left([r.prompt for r in rows]),
        "prompt_mask": left([torch.ones_like(r.prompt) for r in rows]),
        "completion_ids": right([r.completion for r in rows]),
        "completion_mask": right([torch.ones_like(r.completion) for r in rows]),
        "tool_mask": right([r.written.long() for r in rows]),
        "advantages": right([r.advantages for r in rows]),
        "old_per_token_logps": old,
        "ref_per_token_logps": right([r.reference for r in rows]),
        "importance_sampling_ratio": torch.exp(old - sampler).clamp(max=1.2),
        "num_items_in_batch": torch.tensor(sum(int(r.written.sum()) for r in rows)),
    }
    trainer.model.train()
    loss: Tensor = trainer._compute_loss(trainer.model, inputs)
    return loss


def our_loss(model: Any, rows: list[Row], config: LossConfig, max_tokens: int) -> Tensor:
    def sample(index: int, row: Row) -> TrainSample:
        zeros = [0.0] * len(row.prompt)
        behaviour = row.old if config.importance_cap is None else row.sampler
        return TrainSample(
            input_ids=(*row.prompt.tolist(), *row.completion.tolist()),
            loss_mask=(*[0] * len(row.prompt), *row.written.int().tolist()),
            behaviour_logprobs=(*zeros, *behaviour.tolist()),
            advantages=(*zeros, *row.advantages.tolist()),
            reference_logprobs=(*zeros, *row.reference.tolist()),
            policy_version=0,
            trajectory_id=str(index),
        )

    samples = [sample(i, row) for i, row in enumerate(rows)]
    weights = row_weights(samples, local_totals(samples), config)
    total = torch.zeros(())
    for batch in micro_batches(samples, max_tokens):
        logprobs_BT, _ = token_logprobs(model, batch, temperature=0.7)
        old = [torch.cat([torch.zeros(len(rows[i].prompt)), rows[i].old]) for i in batch.rows]
        loss, _ = policy_loss(
            logprobs_BT,
            batch,
            weights[list(batch.rows)],
            config,
            trainer_logprobs_BT=torch.nn.utils.rnn.pad_sequence(old, batch_first=True),
            reference_logprobs_BT=batch.reference_logprobs_BT,
        )
        total = total + loss
    return total


def gradient(model: Any, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


OF_TRL = {
    "grpo": {"aggregation": "sequence_mean"},
    "bnpo": {"aggregation": "token_mean"},
    "dapo": {"aggregation": "token_mean"},
    "dr_grpo": {"aggregation": "constant", "constant_length": MAX_COMPLETION},
    "cispo": {"aggregation": "token_mean", "surrogate": "cispo"},
}


def set_trl(monkeypatch: pytest.MonkeyPatch, trainer: Any, loss_type: str, **attributes: Any) -> None:
    monkeypatch.setattr(trainer.args, "delta", attributes.pop("delta", None))
    settings = {
        "loss_type": loss_type,
        "beta": 0.0,
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 1.28 if loss_type == "cispo" else 0.28,
        "current_gradient_accumulation_steps": trainer.args.steps_per_generation,
    }
    monkeypatch.setattr(trainer.args, "use_bias_correction_kl", attributes.pop("kl_unbiased", False))
    for name, value in (settings | attributes).items():
        monkeypatch.setattr(trainer, name, value, raising=False)


def assert_equal(trainer: Any, rows: list[Row], config: LossConfig) -> None:
    theirs = trl_loss(trainer, rows)
    their_gradient = gradient(trainer.model, theirs)
    assert their_gradient.abs().max() > 1e-3
    for max_tokens in (10_000, 40):
        ours = our_loss(trainer.model, rows, config, max_tokens)
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
        torch.testing.assert_close(gradient(trainer.model, ours), their_gradient, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kl_coef", "kl_unbiased"), [(0.0, False), (0.04, False), (0.04, True)])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", OF_TRL)
def test_loss_and_gradient(
    trainer: Any,
    monkeypatch: pytest.MonkeyPatch,
    loss_type: str,
    ratio: Any,
    kl_coef: float,
    kl_unbiased: bool,
) -> None:
    set_trl(
        monkeypatch,
        trainer,
        loss_type,
        beta=kl_coef,
        kl_unbiased=kl_unbiased,
        importance_sampling_level=ratio,
    )
    config = LossConfig(
        ratio=ratio,
        kl_coef=kl_coef,
        kl_unbiased=kl_unbiased,
        eps_high=0.28,
        **OF_TRL[loss_type],  # type: ignore[arg-type]
    )
    assert_equal(trainer, random_rows(trainer.model, seed=len(loss_type)), config)


def test_dual_clip(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_trl(monkeypatch, trainer, "dapo", delta=1.3)
    rows = random_rows(trainer.model, seed=1)
    assert_equal(trainer, rows, LossConfig(eps_high=0.28, delta=1.3))
    without = our_loss(trainer.model, rows, LossConfig(eps_high=0.28), 10_000)
    assert abs(without - our_loss(trainer.model, rows, LossConfig(eps_high=0.28, delta=1.3), 10_000)) > 1e-3


@pytest.mark.parametrize("loss_type", ["dapo", "cispo"])
def test_truncated_importance_correction(
    trainer: Any, monkeypatch: pytest.MonkeyPatch, loss_type: str
) -> None:
    set_trl(monkeypatch, trainer, loss_type, use_vllm=True, vllm_importance_sampling_correction=True)
    config = LossConfig(eps_high=0.28, importance_cap=1.2, **OF_TRL[loss_type])  # type: ignore[arg-type]
    assert_equal(trainer, random_rows(trainer.model, seed=2), config)
