"""Schema of a run: the fixed sections with their defaults, and one `Part` for every plug point.

The options of a part are not repeated here: they are the parameters of the class or function that its
``_target_`` names (`trainer.config_check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from trainer.parts import Part

T = TypeVar("T")


def option(default: T, doc: str) -> T:
    """A dataclass field with its default and the line that ``--help`` prints."""
    return field(default=default, metadata={"help": doc})


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Where the run lives and what its random draws start from."""

    name: str = option("run", "folder of the run below run.dir")
    dir: str = option("runs", "folder that holds all runs")
    seed: int = option(0, "seed of every random draw")
    resume: bool = option(False, "go on in a folder whose config differs from this one")
    dry: bool = option(False, "build everything, play one episode, make one update, write nothing")

    @property
    def folder(self) -> Path:
        return Path(self.dir) / self.name


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """The GRPO loop."""

    steps: int = option(100, "policy updates")
    split: str = option("train", "tasks to train on")
    tasks_per_step: int = option(16, "different tasks played for one update")
    group_size: int = option(8, "trajectories per task, compared with each other")
    learning_rate: float = option(1e-6, "peak learning rate of AdamW")
    weight_decay: float = option(0.0, "decoupled weight decay")
    warmup_steps: int = option(0, "updates over which the learning rate rises from 0")
    final_learning_rate: float = option(
        1.0, "share of the learning rate left at the last update, falling linearly"
    )
    max_grad_norm: float = option(1.0, "gradient norm above which gradients are scaled down")
    tokens_per_micro_batch: int = option(16384, "padded tokens that go through the model at once")
    kl_on_tied: bool = option(True, "keep the KL term of groups whose rewards are all equal")
    distill_share: float = option(0.5, "share of a step's groups that the memory learns from")
    max_failed_share: float = option(0.5, "stop when more than this share of a step's episodes failed")


@dataclass(frozen=True, slots=True)
class SFTConfig:
    """Warm start on expert demonstrations before GRPO; null for none."""

    episodes: int = option(200, "demonstrations, drawn from train.split")
    steps: int = option(200, "updates")
    learning_rate: float = option(1e-5, "peak learning rate of AdamW")
    tokens_per_batch: int = option(8192, "padded tokens of one update")
    observation_weight: float = option(0.0, "weight of the loss on tokens the world wrote")


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """Greedy and sampled success on tasks that are not trained on."""

    split: str = option("valid_unseen", "tasks to evaluate on")
    tasks: int | None = option(None, "number of tasks, the first of the split; null for all")
    every: int = option(50, "updates between evaluations; 0 for the start and the end alone")
    temperatures: tuple[float, ...] = option((1.0, 0.0), "one evaluation each; 0 is greedy")


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """What a killed run continues from."""

    every: int = option(10, "updates between checkpoints")
    keep: int = option(2, "complete checkpoints kept, the newest")


@dataclass(frozen=True, slots=True)
class Config:
    """One checked run. ``resolved`` holds all of it as plain values: what config.yaml stores."""

    run: RunConfig
    train: TrainConfig
    sft: SFTConfig | None
    evaluation: EvaluationConfig
    checkpoint: CheckpointConfig
    env: Part
    agent: Part
    memory: Part
    retriever: Part | None
    distiller: Part | None
    teacher: Part | None
    rewards: Mapping[str, Part]
    advantage: Part
    loss: Part
    policy: Part
    engine: Part
    logger: Mapping[str, Part]
    resolved: Mapping[str, Any]

    @property
    def processes(self) -> int:
        """How many processes the launcher starts on this machine."""
        return int(self.engine.options.get("processes", 1))


SECTIONS: Mapping[str, type] = {
    "run": RunConfig,
    "train": TrainConfig,
    "sft": SFTConfig,
    "evaluation": EvaluationConfig,
    "checkpoint": CheckpointConfig,
}
OPTIONAL_SECTIONS = frozenset({"sft"})
