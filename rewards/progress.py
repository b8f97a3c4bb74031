"""Progress reward: how much of the goal held at the best moment of the episode."""

from __future__ import annotations

from agents.types import Trajectory
from rewards.base import Reward


class Progress(Reward):
    """Largest share of goal conditions that held at once, in [0, 1] (ALFRED's goal-condition success).

    Tells lost episodes of a group apart, where the outcome alone calls them equal. Worlds that
    report no ``progress`` with their steps leave the trajectory unscored.
    """

    def score(self, trajectory: Trajectory) -> float | None:
        progress: float | None = trajectory.info.get("progress")
        return progress
