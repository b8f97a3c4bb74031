"""Components as a user's own module would bring them."""

from __future__ import annotations

from typing import Literal

import numpy  # noqa: F401  an import that the reader of signatures must not need

from agents.types import Trajectory
from rewards.base import Reward


class Short(Reward):
    """Pays for few steps."""

    def __init__(self, limit: int, scale: float = 1.0, unit: Literal["steps", "turns"] = "steps") -> None:
        super().__init__()
        self.limit, self.scale, self.unit = limit, scale, unit

    def score(self, trajectory: Trajectory) -> float:
        return self.scale * (len(getattr(trajectory, self.unit)) <= self.limit)


class NeedsPackage(Reward):
    """Asks for an optional package when it is made."""

    def __init__(self) -> None:
        super().__init__()
        import deepspeed  # type: ignore[import-not-found]  # noqa: F401


class NoReward:
    """Has the right place in the config and the wrong type."""
