"""Numbers of one training step, from what was played, scored and credited.

Means over trajectories leave masked ones out; ``*_sem`` is the standard error over groups, since the
siblings of a group are not independent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

from agents.types import Trajectory
from envs.types import StopReason
from rewards.base import RewardReport
from trainer.types import GroupAdvantages

REPEATS = 3
"""A trajectory repeats itself when it takes one action on one observation this many times."""


@dataclass(frozen=True, slots=True)
class Played:
    """One group with its rewards and advantages."""

    group: Sequence[Trajectory]
    report: RewardReport
    advantages: GroupAdvantages

    def scored(self) -> list[tuple[Trajectory, float]]:
        """The trajectories that are not masked, with their rewards."""
        pairs = zip(self.group, self.report.total, strict=True)
        return [(trajectory, total) for trajectory, total in pairs if total is not None]


def step_metrics(played: Sequence[Played]) -> dict[str, float]:
    """All numbers of a step's rollouts; a mean over nothing is left out."""
    everything = [t for p in played for t in p.group]
    usable = [t for p in played for t, _ in p.scored()]
    return {
        "trajectories": len(everything),
        "groups": len(played),
        **_mean_over_groups("reward", [[total for _, total in p.scored()] for p in played]),
        **_mean_over_groups("success", _of_each(played, lambda t: t.outcome.success)),
        **_mean_over_groups("turns", _of_each(played, lambda t: len(t.turns))),
        **_mean_over_groups("steps", _of_each(played, lambda t: len(t.steps))),
        **_mean_over_groups("completion_tokens", _of_each(played, _completion_tokens)),
        "prompt_tokens_max": max((len(u.prompt_ids) for t in everything for u in t.turns), default=0),
        "tied_groups": _share([p.advantages.tied for p in played]),
        "masked": 1 - len(usable) / max(len(everything), 1),
        "step_limit": _share([t.stop_reason is StopReason.STEP_LIMIT for t in everything]),
        "context_limit": _share([t.stop_reason is StopReason.CONTEXT_LIMIT for t in everything]),
        **_behaviour(usable),
        **_by_kind(usable),
        **_memory_use(usable),
        **_reward_parts(played),
        **_failures(everything),
    }


def repeats_itself(trajectory: Trajectory) -> bool:
    """Whether one action is taken `REPEATS` times on the same observation."""
    counts = Counter((step.observation, step.action) for step in trajectory.steps)
    return max(counts.values(), default=0) >= REPEATS


def _completion_tokens(trajectory: Trajectory) -> int:
    return sum(len(turn.completion_ids) for turn in trajectory.turns)


def _of_each(played: Sequence[Played], value: Callable[[Trajectory], float]) -> list[list[float]]:
    return [[float(value(trajectory)) for trajectory, _ in p.scored()] for p in played]


def _mean_over_groups(name: str, groups: Sequence[Sequence[float]]) -> dict[str, float]:
    everything = [x for group in groups for x in group]
    if not everything:
        return {}
    means = [fmean(group) for group in groups if group]
    sem = stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0
    return {name: fmean(everything), f"{name}_sem": sem}


def _behaviour(usable: Sequence[Trajectory]) -> dict[str, float]:
    turns = [turn for t in usable for turn in t.turns]
    versions = [turn.policy_version for turn in turns]
    return {
        "truncated": _share([turn.finish_reason == "length" for turn in turns]),
        "faults": _share([turn.fault is not None for turn in turns]),
        "invalid_actions": _share([not step.valid for t in usable for step in t.steps]),
        "repeated_actions": _share([repeats_itself(t) for t in usable]),
        "staleness": max(versions, default=0) - min(versions, default=0),
    }


def _by_kind(usable: Sequence[Trajectory]) -> dict[str, float]:
    won: dict[str, list[bool]] = defaultdict(list)
    for trajectory in usable:
        won[trajectory.task.kind].append(trajectory.outcome.success)
    rates = {f"success/{kind}": _share(wins) for kind, wins in sorted(won.items())}
    return rates | {f"episodes/{kind}": len(wins) for kind, wins in sorted(won.items())}


def _memory_use(usable: Sequence[Trajectory]) -> dict[str, float]:
    reads = [read for t in usable for read in t.memory_reads]
    if not reads:
        return {}
    found = [read for read in reads if read.entry_ids]
    return {
        "memory_reads": len(reads) / len(usable),
        "memory_found": len(found) / len(reads),
        "memory_rejected": _share([read.guidance is None for read in found]),
    }


def _reward_parts(played: Sequence[Played]) -> dict[str, float]:
    columns: dict[str, list[float | None]] = defaultdict(list)
    for p in played:
        for name, scores in p.report.parts.items():
            columns[name].extend(scores)
    values: dict[str, float] = {}
    for name, column in columns.items():
        known = [x for x in column if x is not None]
        values |= {f"reward/{name}": fmean(known)} if known else {}
    for first, second in combinations(columns, 2):
        pairs = zip(columns[first], columns[second], strict=True)
        correlation = _correlation([(a, b) for a, b in pairs if a is not None and b is not None])
        values |= {} if correlation is None else {f"reward_correlation/{first}~{second}": correlation}
    return values


def _correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's r; None for fewer than 8 pairs or a constant part, where it means nothing."""
    if len(pairs) < 8:
        return None
    mean_a, mean_b = fmean(a for a, _ in pairs), fmean(b for _, b in pairs)
    spread_a = sum((a - mean_a) ** 2 for a, _ in pairs)
    spread_b = sum((b - mean_b) ** 2 for _, b in pairs)
    if spread_a == 0 or spread_b == 0:
        return None
    return sum((a - mean_a) * (b - mean_b) for a, b in pairs) / math.sqrt(spread_a * spread_b)


def _failures(everything: Sequence[Trajectory]) -> dict[str, float]:
    owners = Counter(t.failure.owner for t in everything if t.failure is not None)
    return {f"failures/{owner}": count for owner, count in sorted(owners.items())}


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0
