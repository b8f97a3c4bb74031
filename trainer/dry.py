"""`run.dry=true`: everything is built, one group is played and trained on, nothing is written."""

from __future__ import annotations

import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from trainer.build import Parts, build
from trainer.config import Config
from trainer.metrics import Played
from trainer.rng import seed_everything
from trainer.rollout import rollout
from trainer.run import make_updater
from trainer.samples import train_samples
from trainer.scoring import score_groups
from trainer.tasks import tasks_of_step
from trainer.types import TrainSample, UpdateStats

DRY_GROUP = 2
"""The smallest group whose trajectories can be compared."""

_MB = 1e6


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the group of the dry run cost."""

    played: Played
    samples: Sequence[TrainSample]
    update: UpdateStats
    play_seconds: float
    update_seconds: float


def dry_run(config: Config) -> str:
    """The plan of a run as text, measured on one group of `DRY_GROUP` episodes per rank."""
    seed_everything(config.run.seed)
    parts = build(config)
    return _plan(config, parts, _try(config, parts))


def _try(config: Config, parts: Parts) -> _Trial:
    """One step of the loop in `trainer.grpo` on one task."""
    started = time.perf_counter()
    engine, seed = parts.engine, config.run.seed
    tasks = tasks_of_step(parts.world.tasks(config.train.split), 0, engine.world_size, seed)
    groups = rollout(
        tasks[engine.rank :: engine.world_size],
        agent=parts.agent,
        world=parts.world,
        memory=parts.memory.snapshot(),
        policy=parts.policy,
        group_size=DRY_GROUP,
        seed=seed,
        max_failed_share=config.train.max_failed_share,
    )
    (report,) = score_groups(parts.rewards, groups, config.train.max_failed_share)
    played = Played(groups[0], report, parts.estimator(groups[0], report))
    samples = train_samples(played.group, played.advantages, kl_on_tied=config.train.kl_on_tied)
    rolled = time.perf_counter()
    update = make_updater(config, parts, phase="grpo").update(samples)
    return _Trial(played, samples, update, rolled - started, time.perf_counter() - rolled)


def _plan(config: Config, parts: Parts, trial: _Trial) -> str:
    train, model = config.train, parts.policy.model
    episodes = train.tasks_per_step * train.group_size
    scale = episodes / len(trial.played.group)
    tokens = sum(len(sample.input_ids) for sample in trial.samples)
    trained_tokens = sum(sum(sample.loss_mask) for sample in trial.samples)
    rewards = ", ".join("masked" if r is None else f"{r:.3g}" for r in trial.played.report.total)
    world_tasks = {split: len(parts.world.tasks(split)) for split in (train.split, config.evaluation.split)}
    lines = [
        f"Dry run of {config.run.folder}: everything was built, {len(trial.played.group)} episodes played, "
        "one update made. Nothing was written.",
        "",
        "parts",
        *(f"  {name:10} {target}" for name, target in _targets(config)),
        "  tasks      " + ", ".join(f"{count} {split}" for split, count in world_tasks.items()),
        "",
        f"phases      {_phases(config)}",
        f"processes   {config.processes}",
        f"per update  {train.tasks_per_step} tasks x {train.group_size} episodes = {episodes} episodes",
        f"  rows      about {len(trial.samples) * scale:.0f}",
        f"  tokens    about {tokens * scale:,.0f}, of them {trained_tokens * scale:,.0f} trained "
        f"(at most {train.tokens_per_micro_batch:,} at once)",
        "",
        *_parameter_lines(model),
        *_memory_lines(model),
        "",
        f"this group  rewards {rewards}",
        f"            loss {trial.update.loss:.4g}, gradient norm {trial.update.grad_norm:.4g}",
        f"            played in {trial.play_seconds:.1f} s, updated in {trial.update_seconds:.1f} s",
    ]
    return "\n".join(lines)


def _targets(config: Config) -> list[tuple[str, str]]:
    single = {
        "env": config.env,
        "agent": config.agent,
        "memory": config.memory,
        "policy": config.policy,
        "model": config.policy.options["model"],
        "advantage": config.advantage,
        "loss": config.loss,
    }
    rewards = ", ".join(part.target for part in config.rewards.values())
    return [*((name, part.target) for name, part in single.items()), ("rewards", rewards)]


def _phases(config: Config) -> str:
    warm = f"SFT, {config.sft.steps} updates; then " if config.sft is not None else ""
    return f"{warm}GRPO, {config.train.steps} updates"


def _parameter_lines(model: nn.Module) -> list[str]:
    """Counts of trained and frozen parameters, and which they are with layer numbers left out."""
    parameters = list(model.named_parameters())
    trained = sum(p.numel() for _, p in parameters if p.requires_grad)
    total = sum(p.numel() for _, p in parameters)
    lines = [f"parameters  {total:,}, of them trained {trained:,} ({trained / max(total, 1):.1%})"]
    for title, wanted in (("trained", True), ("frozen", False)):
        counts: Counter[str] = Counter()
        for name, parameter in parameters:
            if parameter.requires_grad is wanted:
                counts[re.sub(r"\.\d+\.", ".*.", name)] += parameter.numel()
        lines += [f"  {title:8}  {name} {count:,}" for name, count in counts.most_common(6)]
        if len(counts) > 6:
            lines.append(f"  {title:8}  ... and {len(counts) - 6} more")
    return lines


def _memory_lines(model: nn.Module) -> list[str]:
    """Bytes the run holds by its nature, and the peak that the dry run reached."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    # AdamW keeps two moments beside each gradient.
    lines = [
        f"memory      weights {weights / _MB:,.0f} MB, gradients {trained / _MB:,.0f} MB, "
        f"optimiser {2 * trained / _MB:,.0f} MB"
    ]
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
        return [*lines, f"  peak      {peak / _MB:,.0f} MB on the GPU for this group"]
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return [*lines, f"  peak      {peak / _MB:,.0f} MB of this process for this group"]
