"""Estimators on groups worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest

from agents.types import EnvStep
from tests.trainer.make import report, trajectory, turn
from trainer.advantage import Estimator, gigpo, grpo, grpo_no_std, process, rloo

OUTCOME: list[Estimator] = [grpo, grpo_no_std, rloo, gigpo]


def test_episode_of_three_rows_weighs_as_much_as_one_of_one_row() -> None:
    long, short = trajectory("long", turns=3), trajectory("short", turns=1)
    result = grpo_no_std([long, short], report(1.0, 0.0))
    assert result.outcome == (0.5, -0.5)
    assert result.tokens == (((0.5, 0.5),) * 3, ((-0.5, -0.5),))


def test_thirty_turns_change_nothing_for_the_siblings() -> None:
    for estimator in OUTCOME:
        few = [trajectory(str(i), turns=3) for i in range(3)]
        many = [trajectory("0", turns=30), *few[1:]]
        rewards = report(1.0, 0.0, 0.25)
        assert estimator(few, rewards).outcome == estimator(many, rewards).outcome


def test_grpo_divides_by_the_unbiased_deviation() -> None:
    result = grpo([trajectory(str(i)) for i in range(4)], report(1.0, 0.0, 0.0, 0.0), eps=0.0)
    assert result.outcome == pytest.approx((1.5, -0.5, -0.5, -0.5))


def test_rloo_takes_the_mean_of_the_others() -> None:
    result = rloo([trajectory(str(i)) for i in range(3)], report(3.0, 1.0, 0.0))
    assert result.outcome == pytest.approx((2.5, -0.5, -2.0))


@pytest.mark.parametrize("estimator", OUTCOME)
def test_masked_trajectory_counts_in_nothing(estimator: Estimator) -> None:
    a, b, c = (trajectory(name, turns=2) for name in "abc")
    masked = estimator([a, b, c], report(1.0, None, 0.0))
    without = estimator([a, c], report(1.0, 0.0))
    assert masked.outcome == (without.outcome[0], None, without.outcome[1])
    assert masked.tokens == (without.tokens[0], None, without.tokens[1])


@pytest.mark.parametrize("estimator", OUTCOME)
@pytest.mark.parametrize("rewards", [(0.1 + 0.2, 0.3, 0.3), (1.0, None, None), (None, None, None)])
def test_tied_group_is_exactly_zero(estimator: Estimator, rewards: tuple[float | None, ...]) -> None:
    result = estimator([trajectory(str(i)) for i in range(3)], report(*rewards))
    assert result.tied
    assert result.outcome == tuple(None if r is None else 0.0 for r in rewards)
    assert all(t is None or t == ((0.0, 0.0),) for t in result.tokens)


def test_group_and_report_must_match() -> None:
    with pytest.raises(ValueError, match="report of 2 trajectories for a group of 1"):
        grpo([trajectory()], report(1.0, 0.0))


def walk(name: str, *steps: tuple[str, float]) -> list[EnvStep]:
    return [
        EnvStep(i, observation, f"{name}{i}", reward, True) for i, (observation, reward) in enumerate(steps)
    ]


def test_gigpo_by_hand() -> None:
    won = trajectory("won", turns=2, steps=walk("w", ("start", 0.0), ("hall", 1.0)))
    lost = trajectory("lost", turns=3, steps=walk("l", ("start", 0.0), ("start", 0.0), ("attic", 0.0)))
    result = gigpo([won, lost], report(1.0, 0.0), omega=2.0, gamma=0.5, std=False)
    # "start" was seen three times with returns 0.5, 0, 0; "hall" and "attic" once, which says nothing.
    sixth = 2.0 * 0.5 / 3
    assert result.tokens[0] == (pytest.approx((0.5 + 2 * sixth,) * 2), (0.5, 0.5))
    assert result.tokens[1] == (
        pytest.approx((-0.5 - sixth,) * 2),
        pytest.approx((-0.5 - sixth,) * 2),
        (-0.5, -0.5),
    )
    assert result.outcome == (0.5, -0.5)


def test_gigpo_gives_the_step_advantage_to_every_turn_of_the_step() -> None:
    turns = [turn([1], [2], step=0), turn([1], [3], step=0), turn([1], [4], step=7)]
    won = trajectory("won", turns=turns, steps=walk("w", ("start", 1.0)))
    lost = trajectory("lost", turns=turns, steps=walk("l", ("start", 0.0)))
    result = gigpo([won, lost], report(1.0, 0.0), std=False)
    assert result.tokens[0] == ((1.0,), (1.0,), (0.5,))


def test_gigpo_still_teaches_in_a_tied_group() -> None:
    quick = trajectory("quick", turns=1, steps=walk("q", ("start", 1.0)))
    slow = trajectory("slow", turns=2, steps=walk("s", ("start", 0.0), ("hall", 1.0)))
    result = gigpo([quick, slow], report(1.0, 1.0), std=False, gamma=0.5)
    assert result.tied
    assert result.tokens[0] == ((0.25, 0.25),)
    assert result.tokens[1] == ((-0.25, -0.25), (0.0, 0.0))


def test_process_adds_normalised_credit_over_the_group() -> None:
    group = [trajectory("a"), trajectory("b"), trajectory("c")]
    credit = (((3.0, 0.0),), ((1.0, 1.0),), None)
    rewards = replace(report(1.0, 0.0, 0.5), token_credit=credit)
    result = process(group, rewards, base=grpo_no_std, weight=0.5, eps=0.0)
    # Scored tokens 3, 1, 1: mean 5/3, unbiased deviation sqrt(4/3).
    high, low = (0.5 * (x - 5 / 3) / math.sqrt(4 / 3) for x in (3.0, 1.0))
    assert result.tokens[0] == (pytest.approx((0.5 + high, 0.5)),)
    assert result.tokens[1] == (pytest.approx((-0.5 + low, -0.5 + low)),)
    assert result.tokens[2] == ((0.0, 0.0),)
    everything = process(group, rewards, base=grpo_no_std, weight=0.5, eps=0.0, pool="all")
    assert everything.tokens[0] is not None
    assert everything.tokens[0][0][1] < 0.5


def test_process_without_centre_keeps_every_sign() -> None:
    rewards = replace(report(1.0, 1.0), token_credit=(((2.0, -0.1),), ((3.0, 4.0),)))
    result = process([trajectory("a"), trajectory("b")], rewards, centre=False)
    assert [[math.copysign(1, x) for x in turn] for tokens in result.tokens for turn in tokens or ()] == [
        [1, -1],
        [1, 1],
    ]


def test_process_leaves_masked_credit_out() -> None:
    credit = (((2.0, 1.0),), ((100.0, 100.0),), ((-1.0, 0.0),))
    result = process(
        [trajectory(name) for name in "abc"], replace(report(1.0, None, 0.0), token_credit=credit), base=rloo
    )
    without = process(
        [trajectory(name) for name in "ac"],
        replace(report(1.0, 0.0), token_credit=(credit[0], credit[2])),
        base=rloo,
    )
    assert result.tokens == (without.tokens[0], None, without.tokens[1])


def test_process_adds_to_any_estimator() -> None:
    group = [trajectory(name, turns=1, steps=walk(name, ("start", float(name == "a")))) for name in "ab"]
    rewards = replace(report(1.0, 0.0), token_credit=(((1.0, 2.0),), ((0.0, 3.0),)))
    base = partial(gigpo, omega=0.3)
    plain = base(group, rewards)
    added = process(group, rewards, base=base, weight=0.0)
    assert added.tokens == plain.tokens


def test_process_needs_fitting_credit() -> None:
    with pytest.raises(ValueError, match="none of the rewards returns any"):
        process([trajectory("a"), trajectory("b")], report(1.0, 0.0))
    wrong = replace(report(1.0, 0.0), token_credit=(((1.0,),), ((1.0, 1.0),)))
    with pytest.raises(ValueError, match=r"trajectory a has \[1\] tokens per turn"):
        process([trajectory("a"), trajectory("b")], wrong)
