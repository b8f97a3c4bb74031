"""Numbers of a step or an evaluation, computed from its trajectories: the names the report draws.

Names are ``<family>/<what>``. Means over trajectories leave masked ones out; ``.../sem`` is the
standard error over groups, since the siblings of a group are not independent.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

from agents.types import Status, Trajectory
from envs.types import StopReason
from rewards.base import RewardReport
from trainer.types import GroupAdvantages, UpdateStats

REPEATS = 3
"""A trajectory repeats itself when it takes one action on one observation this many times."""

Groups = Sequence[Sequence[Trajectory]]


def rollout_metrics(
    groups: Groups, reports: Sequence[RewardReport], advantages: Sequence[GroupAdvantages]
) -> dict[str, float]:
    """All numbers of one step's rollouts; the three sequences run over the same groups."""
    played = [t for group in groups for t in group]
    scored = [
        (trajectory, total)
        for group, report in zip(groups, reports, strict=True)
        for trajectory, total in zip(group, report.total, strict=True)
        if total is not None
    ]
    used = [trajectory for trajectory, _ in scored]
    return {
        "rollout/trajectories": len(played),
        "rollout/groups": len(groups),
        **_group_mean("reward", [[x for x in r.total if x is not None] for r in reports]),
        **_group_mean("success", _per_group(groups, reports, lambda t: float(t.outcome.success))),
        **_by_kind(used),
        **_group_mean("length/turns", _per_group(groups, reports, lambda t: len(t.turns))),
        **_group_mean("length/steps", _per_group(groups, reports, lambda t: len(t.steps))),
        **_group_mean("length/tokens", _per_group(groups, reports, _tokens)),
        "length/prompt_max": max((len(u.prompt_ids) for t in played for u in t.turns), default=0),
        **_shares(played, used),
        "share/masked": _share(len(played) - len(used), len(played)),
        "share/tied": _share(sum(a.tied for a in advantages), len(advantages)),
        **_staleness(used),
        **_memory_use(used),
        **_parts(reports),
        **{f"failures/{owner}": n for owner, n in _failures(played).items()},
    }


def update_metrics(stats: UpdateStats) -> dict[str, float]:
    """The numbers of an `UpdateStats` under ``update/``."""
    return {
        "update/loss": stats.loss,
        "update/grad_norm": stats.grad_norm,
        "update/skipped": float(stats.skipped),
        **{f"update/{name}": value for name, value in stats.metrics.items()},
    }


def eval_values(trajectories: Sequence[Trajectory], *, split: str, mode: str) -> dict[str, Any]:
    """Values of an evaluation row. ``mode``: ``sampled`` or ``greedy``.

    ``episodes`` counts those that could be played; the others are in ``failed``. ``by_kind`` maps a
    task kind to [wins, episodes].
    """
    played = [t for t in trajectories if t.status is Status.OK]
    by_kind: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for trajectory in played:
        by_kind[trajectory.task.kind][0] += trajectory.outcome.success
        by_kind[trajectory.task.kind][1] += 1
    return {
        "split": split,
        "mode": mode,
        "wins": sum(t.outcome.success for t in played),
        "episodes": len(played),
        "failed": len(trajectories) - len(played),
        "by_kind": dict(sorted(by_kind.items())),
        "steps": fmean(len(t.steps) for t in played) if played else 0.0,
        "tokens": fmean(_tokens(t) for t in played) if played else 0.0,
    }


def repeats_itself(trajectory: Trajectory) -> bool:
    """Whether one action is taken `REPEATS` times on the same observation."""
    counts = Counter((step.observation, step.action) for step in trajectory.steps)
    return max(counts.values(), default=0) >= REPEATS


def _tokens(trajectory: Trajectory) -> int:
    return sum(len(turn.completion_ids) for turn in trajectory.turns)


def _per_group(groups: Groups, reports: Sequence[RewardReport], value: Any) -> list[list[float]]:
    return [
        [float(value(t)) for t, total in zip(group, report.total, strict=True) if total is not None]
        for group, report in zip(groups, reports, strict=True)
    ]


def _group_mean(name: str, values: Sequence[Sequence[float]]) -> dict[str, float]:
    everything = [x for group in values for x in group]
    if not everything:
        return {}
    means = [fmean(group) for group in values if group]
    sem = stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0
    return {f"{name}/mean": fmean(everything), f"{name}/sem": sem}


def _by_kind(used: Sequence[Trajectory]) -> dict[str, float]:
    wins: dict[str, list[float]] = defaultdict(list)
    for trajectory in used:
        wins[trajectory.task.kind].append(float(trajectory.outcome.success))
    rates = {f"success_by_kind/{kind}": fmean(won) for kind, won in sorted(wins.items())}
    return rates | {f"episodes_by_kind/{kind}": len(won) for kind, won in sorted(wins.items())}


def _shares(played: Sequence[Trajectory], used: Sequence[Trajectory]) -> dict[str, float]:
    turns = [turn for t in played for turn in t.turns]
    steps = [step for t in played for step in t.steps]
    stops = Counter(t.stop_reason for t in played)
    return {
        "share/truncated": _share(sum(turn.finish_reason == "length" for turn in turns), len(turns)),
        "share/faults": _share(sum(turn.fault is not None for turn in turns), len(turns)),
        "share/invalid": _share(sum(not step.valid for step in steps), len(steps)),
        "share/repeated": _share(sum(repeats_itself(t) for t in used), len(used)),
        "share/step_limit": _share(stops[StopReason.STEP_LIMIT], len(played)),
        "share/context_limit": _share(stops[StopReason.CONTEXT_LIMIT], len(played)),
    }


def _staleness(used: Sequence[Trajectory]) -> dict[str, float]:
    """Versions between the oldest and the newest policy that wrote one step's turns."""
    versions = [turn.policy_version for t in used for turn in t.turns]
    return {"policy/staleness": max(versions) - min(versions)} if versions else {}


def _memory_use(used: Sequence[Trajectory]) -> dict[str, float]:
    reads = [read for t in used for read in t.memory_reads]
    if not reads:
        return {}
    found = [read for read in reads if read.entry_ids]
    return {
        "memory_use/reads": len(reads) / len(used),
        "memory_use/found": len(found) / len(reads),
        "memory_use/accepted": _share(sum(read.guidance is not None for read in found), len(found)),
    }


def _parts(reports: Sequence[RewardReport]) -> dict[str, float]:
    columns: dict[str, list[float | None]] = defaultdict(list)
    for report in reports:
        for name, scores in report.parts.items():
            columns[name].extend(scores)
    values: dict[str, float] = {}
    for name, scores in columns.items():
        known = [x for x in scores if x is not None]
        values |= {f"reward_part/{name}": fmean(known)} if known else {}
    for first, second in combinations(columns, 2):
        pairs = zip(columns[first], columns[second], strict=True)
        correlation = _correlation([(a, b) for a, b in pairs if a is not None and b is not None])
        values |= {f"reward_correlation/{first}~{second}": correlation} if correlation is not None else {}
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


def _failures(played: Iterable[Trajectory]) -> Mapping[str, int]:
    return Counter(t.failure.owner for t in played if t.failure is not None)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
