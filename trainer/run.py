"""One run from its config: take up where the folder stands, warm start, GRPO, evaluation, report."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.optim.lr_scheduler import LambdaLR

from trainer.build import Parts, build
from trainer.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint
from trainer.config import Config
from trainer.grpo import grpo
from trainer.logging import Loggers
from trainer.logprobs import Reference
from trainer.loss import LossConfig
from trainer.model_card import write_model_card
from trainer.record import Record, stateful
from trainer.report import build_report
from trainer.rng import restore_rng, seed_everything
from trainer.run_folder import RunFolder
from trainer.sft import demonstrate, sft
from trainer.update import UpdateConfig, Updater


def train(config: Config) -> None:
    """Train as ``config`` says; the same call after an interruption goes on from the last checkpoint."""
    seed_everything(config.run.seed)
    parts = build(config)
    writes = parts.engine.rank == 0
    folder = RunFolder.open(config.run.folder, config.resolved, resume=config.run.resume) if writes else None
    (resume_from,) = set(parts.engine.gather(folder.resume_from if folder else None)) - {None} or {None}
    saved = load_checkpoint(resume_from) if resume_from else None
    if folder and saved:
        folder.rewind(saved.logs)
    loggers = (
        Loggers(folder.path, config.resolved, parts.loggers, resumed=saved is not None) if folder else None
    )
    record = Record(config, parts, folder, loggers)
    try:
        _phases(config, parts, record, saved)
    finally:
        if loggers:
            loggers.close()
        if folder:
            folder.close()
    if folder:
        build_report(folder.path)
        write_model_card(folder.path, latest_checkpoint(folder.checkpoints))


def _phases(config: Config, parts: Parts, record: Record, saved: Checkpoint | None) -> None:
    """SFT unless it is done, the starting evaluation, GRPO."""
    if config.sft is not None and (saved is None or saved.state.phase == "sft"):
        # Played before anything is restored: demonstrations start from an empty memory, resumed or not.
        demonstrations = demonstrate(config, parts)
        updater = make_updater(config, parts, phase="sft")
        done = _restore(saved, parts, updater, record)
        sft(config, parts, updater, record, demonstrations, done)
        saved = None
    updater = make_updater(config, parts, phase="grpo")
    done = _restore(saved, parts, updater, record)
    if saved is None:
        record.evaluate("grpo", 0)
        record.checkpoint("grpo", 0, updater)
    grpo(config, parts, updater, record, done)


def make_updater(config: Config, parts: Parts, phase: str) -> Updater:
    """Optimiser, schedule and loss of a phase: ``sft`` or ``grpo``."""
    train, sft_config = config.train, config.sft
    if phase == "sft":
        assert sft_config is not None
        rate, steps, loss, temperature = (
            sft_config.learning_rate,
            sft_config.steps,
            LossConfig(surrogate="sft"),
            1.0,
        )
        schedule = _schedule(steps // 20, steps, 0.1)
    else:
        rate, loss, temperature = train.learning_rate, parts.loss, parts.policy.sampling.temperature
        schedule = _schedule(train.warmup_steps, train.steps, train.final_learning_rate)
    trained = [p for p in parts.policy.model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.95), weight_decay=config.train.weight_decay)
    return Updater(
        parts.policy.model,
        optimizer,
        parts.engine,
        loss,
        UpdateConfig(
            max_tokens=config.train.tokens_per_micro_batch, max_grad_norm=config.train.max_grad_norm
        ),
        temperature=temperature,
        scheduler=LambdaLR(optimizer, schedule),
        reference=Reference(parts.policy.model) if loss.kl_coef > 0 else None,
    )


def _schedule(warmup: int, steps: int, final: float) -> Callable[[int], float]:
    """Linear rise over ``warmup`` updates, then a linear fall to the share ``final`` at the last one."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 1.0 - (1.0 - final) * (step - warmup) / max(steps - warmup, 1)

    return factor


def _restore(saved: Checkpoint | None, parts: Parts, updater: Updater, record: Record) -> int:
    """Put everything into the state of ``saved``; returns the number of updates done in its phase."""
    if saved is None:
        return 0
    saved.restore_model(parts.policy.model)
    saved.restore(stateful(updater, record.alarms))
    if saved.memory is not None:
        parts.memory.load_state_dict(saved.memory)
    restore_rng(saved.rng, parts.engine.rank)
    parts.policy.version = int(saved.state.extras["policy_version"])
    updater.skipped_in_row = int(saved.state.extras["skipped_in_row"])
    return saved.state.step
