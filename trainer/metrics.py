"""Numbers of one training step, from what was played, scored and credited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from agents.types import Status, Trajectory
from rewards.base import RewardReport
from trainer.types import GroupAdvantages


@dataclass(frozen=True, slots=True)
class Played:
    """One group with its rewards and advantages."""

    group: Sequence[Trajectory]
    report: RewardReport
    advantages: GroupAdvantages


def step_metrics(played: Sequence[Played]) -> dict[str, float]:
    """Means over the scored trajectories of a step; ``*_sem`` is the standard error over groups."""
    trajectories = [t for p in played for t in p.group]
    usable = [t for t in trajectories if t.status is Status.OK]
    turns = [turn for t in usable for turn in t.turns]
    steps = [step for t in usable for step in t.steps]
    rewards = [r for p in played for r in p.report.total if r is not None]
    group_rewards = _group_means(played, lambda p, i: p.report.total[i])
    group_success = _group_means(played, lambda p, i: float(p.group[i].outcome.success))
    values = {
        "reward": _mean(rewards),
        "reward_sem": _sem(group_rewards),
        "success": _mean([float(t.outcome.success) for t in usable]),
        "success_sem": _sem(group_success),
        "tied_groups": _mean([float(p.advantages.tied) for p in played]),
        "masked": 1 - len(rewards) / max(len(trajectories), 1),
        "steps": _mean([float(len(t.steps)) for t in usable]),
        "turns": _mean([float(len(t.turns)) for t in usable]),
        "completion_tokens": _mean([float(sum(len(u.completion_ids) for u in t.turns)) for t in usable]),
        "truncated": _mean([float(turn.finish_reason == "length") for turn in turns]),
        "faults": _mean([float(turn.fault is not None) for turn in turns]),
        "invalid_actions": _mean([float(not step.valid) for step in steps]),
        "memory_reads": _mean([float(len(t.memory_reads)) for t in usable]),
        "memory_rejected": _mean(
            [float(read.guidance is None) for t in usable for read in t.memory_reads if read.entry_ids]
        ),
    }
    for name in played[0].report.parts:
        values[f"reward/{name}"] = _mean(
            [score for p in played for score in p.report.parts[name] if score is not None]
        )
    return values


def _group_means(played: Sequence[Played], value: object) -> list[float]:
    means = []
    for p in played:
        scored = [i for i, total in enumerate(p.report.total) if total is not None]
        if scored:
            means.append(fmean(float(value(p, i)) for i in scored))  # type: ignore[operator]
    return means


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _sem(values: Sequence[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
