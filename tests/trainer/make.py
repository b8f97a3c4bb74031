"""Small trajectories and rows for the tests of credit and update."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agents.types import AllowedTokens, EnvStep, Outcome, Trajectory, Turn
from envs.types import StopReason, Task
from rewards.base import RewardReport
from trainer.types import TrainSample

TASK = Task("task-0", "test", "kind", "train", seed=0)


def turn(
    prompt: Sequence[int],
    completion: Sequence[int],
    *,
    step: int = 0,
    version: int = 0,
    allowed: AllowedTokens | None = None,
) -> Turn:
    logprobs = tuple(-0.1 * (i + 1) for i in range(len(completion)))
    return Turn("act", step, tuple(prompt), tuple(completion), logprobs, "", version, "stop", allowed)


def trajectory(
    trajectory_id: str = "a", turns: int | Sequence[Turn] = 1, steps: Sequence[EnvStep] = ()
) -> Trajectory:
    """A trajectory of the given turns, or of that many two-token turns with unrelated prompts."""
    made = [turn([1, 2, i], [3, 4], step=i) for i in range(turns)] if isinstance(turns, int) else turns
    return Trajectory(trajectory_id, TASK, tuple(made), tuple(steps), Outcome(0.0, False), StopReason.FAILURE)


def report(*total: float | None) -> RewardReport:
    return RewardReport(
        total=total, parts={}, status=tuple("ok" if t is not None else "unscored" for t in total)
    )


def random_samples(seed: int, count: int, *, vocabulary: int = 61, longest: int = 24) -> list[TrainSample]:
    """Ragged rows, two to a trajectory, with holes in the loss mask and some limited tokens."""
    draw = random.Random(seed)

    def sample(index: int) -> TrainSample:
        n = draw.randint(4, longest)
        mask = [0, 1] + [int(draw.random() < 0.6) for _ in range(n - 2)]
        ids = [draw.randrange(vocabulary) for _ in range(n)]
        limited = [bool(m) and draw.random() < 0.4 for m in mask]
        allowed = tuple(
            tuple({token, *draw.sample(range(vocabulary), draw.randint(1, 6))}) if limit else None
            for token, limit in zip(ids, limited, strict=True)
        )
        return TrainSample(
            input_ids=tuple(ids),
            loss_mask=tuple(mask),
            behaviour_logprobs=tuple(draw.uniform(-5, -1) * m for m in mask),
            advantages=tuple(draw.choice((-1.0, 0.5, 1.5)) * m for m in mask),
            policy_version=0,
            trajectory_id=f"t{index // 2}",
            allowed=allowed,
        )

    return [sample(i) for i in range(count)]
