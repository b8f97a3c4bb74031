"""Rewards: a group of trajectories in, a `RewardReport` out.

A reward is a class with ``score(trajectory)``; override ``score_group`` for one that compares the
trajectories of a task or needs a model, and ``credit`` for one that also scores tokens.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.types import Status, Trajectory

TokenCredit = tuple[tuple[float, ...], ...]
"""Signed credit per turn and completion token of one trajectory."""


class Reward:
    """Base of all rewards. ``None`` means unscorable: that trajectory is masked and counted."""

    name: str = ""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def score(self, trajectory: Trajectory) -> float | None:
        """Reward of one trajectory before its weight."""
        raise TypeError(f"{type(self).__name__} must define score() or score_group()")

    async def score_group(self, group: Sequence[Trajectory]) -> Sequence[float | None]:
        """Rewards of the G trajectories of one task, in order."""
        return [self.score(trajectory) for trajectory in group]

    async def credit(self, group: Sequence[Trajectory]) -> Sequence[TokenCredit | None] | None:
        """Token credit for each trajectory, or None for a reward that gives none."""
        return None


@dataclass(frozen=True, slots=True)
class RewardReport:
    """Rewards of one group: ``total[i]``, every part before its weight, optional token credit.

    ``total[i]`` is None when trajectory i is masked: it failed, or some part could not score it;
    ``status[i]`` says which.
    """

    total: tuple[float | None, ...]
    parts: Mapping[str, tuple[float | None, ...]]
    status: tuple[str, ...]
    token_credit: tuple[TokenCredit | None, ...] | None = None
    errors: Mapping[str, str] = field(default_factory=dict)
    """First traceback of each part that raised."""


async def score_group(rewards: Mapping[str, Reward], group: Sequence[Trajectory]) -> RewardReport:
    """Apply all rewards to one group and add them up by weight.

    A failed trajectory is masked. A reward that raises gives None for the trajectories it was
    asked for; its first traceback is kept in ``errors`` and the caller decides when to stop.
    """
    playable = [i for i, t in enumerate(group) if t.status is Status.OK]
    parts: dict[str, tuple[float | None, ...]] = {}
    errors: dict[str, str] = {}
    credit: list[TokenCredit | None] | None = None
    for name, reward in rewards.items():
        scores: list[float | None] = [None] * len(group)
        try:
            asked = [group[i] for i in playable]
            for i, value in zip(playable, await reward.score_group(asked), strict=True):
                scores[i] = value
            given = await reward.credit(asked)
            if given is not None:
                credit = _add_credit(credit, given, playable, reward.weight, len(group))
        except Exception:
            scores = [None] * len(group)
            errors[name] = traceback.format_exc()
        parts[name] = tuple(scores)

    total: list[float | None] = []
    status: list[str] = []
    for i, trajectory in enumerate(group):
        unscored = [name for name, scores in parts.items() if scores[i] is None]
        if trajectory.status is not Status.OK:
            owner = trajectory.failure.owner if trajectory.failure else "unknown"
            status.append(f"failed: {owner}")
            total.append(None)
        elif unscored:
            status.append("unscored: " + ", ".join(unscored))
            total.append(None)
        else:
            status.append("ok")
            total.append(sum(rewards[name].weight * (scores[i] or 0.0) for name, scores in parts.items()))
    return RewardReport(
        total=tuple(total),
        parts=parts,
        status=tuple(status),
        token_credit=tuple(credit) if credit is not None else None,
        errors=errors,
    )


def _add_credit(
    sofar: list[TokenCredit | None] | None,
    given: Sequence[TokenCredit | None],
    playable: Sequence[int],
    weight: float,
    group_size: int,
) -> list[TokenCredit | None]:
    total = sofar or [None] * group_size
    for i, credit in zip(playable, given, strict=True):
        if credit is None:
            continue
        scaled = tuple(tuple(weight * c for c in turn) for turn in credit)
        before = total[i]
        total[i] = scaled if before is None else tuple(
            tuple(a + b for a, b in zip(x, y, strict=True)) for x, y in zip(before, scaled, strict=True)
        )
    return total
