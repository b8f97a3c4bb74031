"""Outcome advantages equal verl's core_algos where the definition is the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from rewards.base import RewardReport
from tests.trainer.make import trajectory
from trainer.advantage import Estimator, grpo, grpo_no_std, rloo

core_algos = pytest.importorskip(
    "verl.trainer.ppo.core_algos",
    reason="parity with verl needs the extra [verl]: pip install 'memgrpo[verl]'",
    exc_type=ImportError,
)


def verl_advantages(function: Any, groups: list[list[float]], **options: Any) -> list[list[float]]:
    """verl takes one row per rollout, the reward on its last token, and a group id per row."""
    rewards = [reward for group in groups for reward in group]
    token_rewards_BT = torch.zeros(len(rewards), 3)
    token_rewards_BT[:, -1] = torch.tensor(rewards)
    index = np.array([str(i) for i, group in enumerate(groups) for _ in group])
    advantages_BT, _ = function(token_rewards_BT, torch.ones_like(token_rewards_BT), index, **options)
    values = iter(advantages_BT[:, 0].tolist())
    return [[next(values) for _ in group] for group in groups]


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (grpo, "compute_grpo_outcome_advantage", {}),
        (grpo, "compute_grpo_vectorized_outcome_advantage", {}),
        (grpo_no_std, "compute_grpo_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
        (rloo, "compute_rloo_outcome_advantage", {}),
        (rloo, "compute_rloo_vectorized_outcome_advantage", {}),
    ],
)
def test_outcome_advantage(ours: Estimator, theirs: str, options: dict[str, Any]) -> None:
    draw = random.Random(0)
    groups = [[draw.choice([0.0, 1.0, draw.uniform(-2, 2)]) for _ in range(size)] for size in (2, 3, 8, 8)]
    groups.append([0.0, 1.0, 0.0, 0.0])
    expected = verl_advantages(getattr(core_algos, theirs), groups, **options)
    for rewards, values in zip(groups, expected, strict=True):
        report = RewardReport(total=tuple(rewards), parts={}, status=("ok",) * len(rewards))
        group = [trajectory(str(i), turns=draw.randint(1, 30)) for i in range(len(rewards))]
        assert ours(group, report).outcome == pytest.approx(values, abs=1e-5)
