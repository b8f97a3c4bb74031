"""Outcome reward: did the episode end in success, and optionally how well it scored."""

from __future__ import annotations

from agents.types import Trajectory
from rewards.base import Reward


class Outcome(Reward):
    """``success`` for a won episode (MemHarness: 10) plus ``score_weight`` times the world's score."""

    def __init__(self, weight: float = 1.0, success: float = 1.0, score_weight: float = 0.0) -> None:
        super().__init__(weight)
        self.success = success
        self.score_weight = score_weight

    def score(self, trajectory: Trajectory) -> float:
        won = self.success if trajectory.outcome.success else 0.0
        return won + self.score_weight * trajectory.outcome.score
