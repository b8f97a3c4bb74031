"""Rewards of a step's groups, and when too many of them could not be given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from agents.types import Trajectory
from rewards.base import Reward, RewardReport, score_group


class RewardError(RuntimeError):
    """More trajectories than allowed could not be scored."""


def score_groups(
    rewards: Mapping[str, Reward], groups: Sequence[Sequence[Trajectory]], max_unscored_share: float
) -> list[RewardReport]:
    """One report per group; RewardError with the first traceback past ``max_unscored_share``."""

    async def all_at_once() -> list[RewardReport]:
        return list(await asyncio.gather(*(score_group(rewards, group) for group in groups)))

    reports = asyncio.run(all_at_once())
    statuses = [status for report in reports for status in report.status]
    unscored = [status for status in statuses if status.startswith("unscored")]
    if unscored and len(unscored) > max_unscored_share * len(statuses):
        errors = {name: trace for report in reports for name, trace in report.errors.items()}
        first = next(iter(errors.values()), "no reward raised; some returned None")
        raise RewardError(
            f"{len(unscored)} of {len(statuses)} trajectories could not be scored "
            f"({unscored[0]}); allowed is a share of {max_unscored_share}. First error:\n{first}"
        )
    return reports
