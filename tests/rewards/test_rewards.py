"""Rewards of single trajectories and how a group's report is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agents.react import React
from agents.types import Failure, Status, Trajectory
from envs.household import HouseholdWorld
from envs.household.progress import goal_progress
from rewards.base import Reward, RewardReport, TokenCredit, score_group
from rewards.format import Format
from rewards.outcome import Outcome
from rewards.progress import Progress
from tests.agents.test_memharness import play


def episode(*actions: str) -> Trajectory:
    script = iter(actions)
    return play(React("react_tiny", max_steps=len(actions)), lambda *_: next(script))


@pytest.fixture(scope="module")
def won() -> Trajectory:
    return episode("go to lamp", "use lamp")


@pytest.fixture(scope="module")
def lost() -> Trajectory:
    return episode("wait", "break lamp")


def report(group: Sequence[Trajectory], **rewards: Reward) -> RewardReport:
    return asyncio.run(score_group(rewards, group))


def test_outcome_and_format(won: Trajectory, lost: Trajectory) -> None:
    outcome, form = Outcome(success=10.0, score_weight=0.5), Format(bonus=0.1, invalid_cost=0.2)
    assert [outcome.score(t) for t in (won, lost)] == [10.5, 0.0]
    assert form.score(won) == pytest.approx(0.1)
    assert form.score(lost) == pytest.approx(0.1 - 0.2 * 0.5)


def test_a_dropped_action_earns_no_format_reward(won: Trajectory) -> None:
    first, second = won.turns
    faulty = replace(won, turns=(first, replace(second, fault="action: empty")))
    assert Format(bonus=1.0, invalid_cost=0.0).score(faulty) == 0.5


def test_total_is_the_weighted_sum_of_the_parts(won: Trajectory, lost: Trajectory) -> None:
    got = report([won, lost], outcome=Outcome(weight=2.0), format=Format(weight=3.0))
    assert got.parts["outcome"] == (1.0, 0.0)
    assert got.total == pytest.approx((2.0 + 3.0 * 0.1, 3.0 * 0.05))
    assert got.status == ("ok", "ok")


def test_failed_trajectories_are_masked_and_named(won: Trajectory) -> None:
    failed = replace(won, status=Status.FAILED, failure=Failure("environment", "OSError", "gone"))
    got = report([won, failed], outcome=Outcome())
    assert got.total == (1.0, None) and got.status == ("ok", "failed: environment")


class Raises(Reward):
    def score(self, trajectory: Trajectory) -> float:
        raise RuntimeError("judge is down")


def test_a_reward_that_raises_masks_and_keeps_its_traceback(won: Trajectory) -> None:
    got = report([won], outcome=Outcome(), judge=Raises())
    assert got.total == (None,) and got.status == ("unscored: judge",)
    assert got.parts["outcome"] == (1.0,) and "judge is down" in got.errors["judge"]


class Credits(Reward):
    def score(self, trajectory: Trajectory) -> float:
        return 0.0

    async def credit(self, group: Sequence[Trajectory]) -> Sequence[TokenCredit | None]:
        return [tuple(tuple(1.0 for _ in turn.completion_ids) for turn in t.turns) for t in group]


def test_token_credit_of_several_rewards_adds_up_by_weight(won: Trajectory) -> None:
    got = report([won], a=Credits(weight=2.0), b=Credits(weight=0.5))
    assert got.token_credit is not None and got.token_credit[0] is not None
    assert {c for turn in got.token_credit[0] for c in turn} == {2.5}


def test_progress_grows_to_one_along_a_solution_of_every_kind() -> None:
    world = HouseholdWorld(n_train=12)
    env = world.make_env()
    for task in world.tasks("train"):
        env.reset(task)
        start = goal_progress(env.state)
        seen = [start] + [env.step(action).info["progress"] for action in env.gold(task)]
        assert 0.0 <= start < 1.0 and seen[-1] == 1.0, task
        assert len(set(seen)) >= 3, task


def test_progress_is_unscored_in_a_world_that_reports_none(won: Trajectory) -> None:
    assert Progress().score(won) is None
    assert Progress().score(replace(won, info={"progress": (0.25, 0.5, 0.25)})) == 0.5


def test_progress_credits_the_steps_that_lead_to_a_gain(won: Trajectory) -> None:
    played = replace(won, info={"progress": (0.0, 0.5)})
    got = report([played], progress=Progress(weight=2.0, gamma=0.5))
    assert got.token_credit is not None and got.token_credit[0] is not None
    assert [set(turn) for turn in got.token_credit[0]] == [{0.5}, {1.0}]
