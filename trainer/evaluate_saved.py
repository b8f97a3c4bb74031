"""Evaluate what a run has saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memory.errors import UserError
from trainer.build import build
from trainer.checkpoint import latest_checkpoint, load_checkpoint
from trainer.config import Config
from trainer.evaluate import Evaluation, evaluations


def evaluate_saved(folder: Path, config: Config) -> Iterator[Evaluation]:
    """Results of the newest checkpoint in ``folder`` at each of ``evaluation.temperatures``.

    The memory is the checkpoint's. Nothing is written. No complete checkpoint: `UserError`.
    """
    found = latest_checkpoint(folder / "checkpoints")
    if found is None:
        raise UserError(
            f"{folder / 'checkpoints'} holds no complete checkpoint, expected at least one.\n"
            "  Train longer than checkpoint.every updates, or give the folder of another run."
        )
    saved = load_checkpoint(found)
    parts = build(config)
    saved.restore_model(parts.policy.model)
    parts.policy.version = saved.state.step
    if saved.memory is not None:
        parts.memory.load_state_dict(saved.memory)
    for result, _ in evaluations(config, parts):
        yield result
