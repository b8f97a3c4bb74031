"""Progress reward: how much of the goal held at the best moment, and which steps brought it there."""

from __future__ import annotations

from collections.abc import Sequence

from agents.types import Trajectory
from rewards.base import Reward, TokenCredit


class Progress(Reward):
    """Largest share of goal conditions that held at once, in [0, 1] (ALFRED's goal-condition success).

    Tells lost episodes of a group apart, where the outcome alone calls them equal. As token credit,
    for the estimator ``process``, every token of a step gets the gains from that step on, discounted
    by ``gamma`` a step; a gain is what exceeds the best share so far. Worlds that report no
    ``progress`` with their steps leave the trajectory unscored.
    """

    def __init__(self, weight: float = 1.0, gamma: float = 0.8) -> None:
        super().__init__(weight)
        if not 0 <= gamma <= 1:
            raise ValueError(f"progress.gamma is {gamma}; expected a discount in [0, 1]")
        self.gamma = gamma

    def score(self, trajectory: Trajectory) -> float | None:
        return max(_shares(trajectory), default=None)

    async def credit(self, group: Sequence[Trajectory]) -> Sequence[TokenCredit | None]:
        return [self._credit(trajectory) for trajectory in group]

    def _credit(self, trajectory: Trajectory) -> TokenCredit | None:
        shares = _shares(trajectory)
        if not shares:
            return None
        to_go = _discounted(_gains(shares), self.gamma)
        # The last turns of an episode cut short by its context have no step of their own.
        of_turn = [to_go[turn.step] if turn.step < len(to_go) else 0.0 for turn in trajectory.turns]
        return tuple(
            (value,) * len(turn.completion_ids) for value, turn in zip(of_turn, trajectory.turns, strict=True)
        )


def _shares(trajectory: Trajectory) -> Sequence[float]:
    shares: Sequence[float] = trajectory.info.get("progress", ())
    return shares


def _gains(shares: Sequence[float]) -> list[float]:
    gains, best = [], 0.0
    for share in shares:
        gains.append(max(share - best, 0.0))
        best = max(best, share)
    return gains


def _discounted(gains: Sequence[float], gamma: float) -> list[float]:
    to_go, after = [0.0] * len(gains), 0.0
    for step in reversed(range(len(gains))):
        to_go[step] = after = gains[step] + gamma * after
    return to_go
