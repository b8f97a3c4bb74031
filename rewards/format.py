"""Format reward: well-formed turns earn, commands the world refused cost."""

from __future__ import annotations

from agents.types import Trajectory
from rewards.base import Reward


class Format(Reward):
    """Share of well-formed turns times ``bonus`` minus share of refused actions times ``invalid_cost``.

    A turn whose output was malformed, and whose action was therefore dropped, earns nothing
    (MemHarness reward: 0.1 format, 0.1 invalid action).
    """

    def __init__(self, weight: float = 1.0, bonus: float = 0.1, invalid_cost: float = 0.1) -> None:
        super().__init__(weight)
        self.bonus = bonus
        self.invalid_cost = invalid_cost

    def score(self, trajectory: Trajectory) -> float:
        turns, steps = trajectory.turns, trajectory.steps
        well_formed = sum(turn.fault is None for turn in turns) / max(len(turns), 1)
        refused = sum(not step.valid for step in steps) / max(len(steps), 1)
        return self.bonus * well_formed - self.invalid_cost * refused
