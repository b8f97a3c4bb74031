"""Batches of the warm start, the order of tasks, intervals, and what the memory takes in."""

from __future__ import annotations

import itertools

import pytest

from envs.types import Task
from trainer.sft import batches
from trainer.statistics import mean_interval, wilson
from trainer.tasks import tasks_of_step
from trainer.types import TrainSample


def row(name: str, length: int) -> TrainSample:
    return TrainSample((1,) * length, (1,) * length, (0.0,) * length, (1.0,) * length, 0, name)


ROWS = [row(str(i), 3 + i) for i in range(7)]


def test_every_row_comes_once_before_any_again() -> None:
    order = [r.trajectory_id for batch in batches(ROWS, 12, 10, seed=1) for r in batch]
    for start in range(0, len(order) - len(ROWS), len(ROWS)):
        assert sorted(order[start : start + len(ROWS)]) == [str(i) for i in range(7)]


def test_batches_hold_the_tokens_asked_for_and_repeat_by_seed() -> None:
    plan = list(batches(ROWS, 9, 16, seed=2))
    assert len(plan) == 9
    for batch in plan:
        tokens = [len(r.input_ids) for r in batch]
        assert sum(tokens) >= 16 > sum(tokens[:-1])
    assert plan[4:] == list(itertools.islice(batches(ROWS, 9, 16, seed=2), 4, None))
    assert plan != list(batches(ROWS, 9, 16, seed=3))


def test_no_won_demonstration_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to imitate"):
        next(batches([], 1, 10, seed=0))


TASKS = [Task(str(i), "w", "k", "train", i) for i in range(5)]


def test_tasks_pass_through_the_list_in_shuffled_epochs() -> None:
    steps = [tasks_of_step(TASKS, step, 2, seed=0) for step in range(10)]
    flat = [task.task_id for chosen in steps for task in chosen]
    for epoch in range(4):
        assert sorted(flat[5 * epoch : 5 * epoch + 5]) == ["0", "1", "2", "3", "4"]
    assert len({tuple(flat[5 * e : 5 * e + 5]) for e in range(4)}) > 1
    assert tasks_of_step(TASKS, 7, 2, seed=0) == steps[7]


def test_wilson_interval_against_known_values() -> None:
    assert wilson(8, 20) == pytest.approx((0.2188065, 0.6134185), abs=1e-6)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775328), abs=1e-6)
    assert wilson(0, 0) == (0.0, 1.0)


def test_mean_interval_is_students_t() -> None:
    # Standard error sqrt(43 / 3), quantile 4.30265 of t with 2 degrees of freedom.
    assert mean_interval([20.0, 25.0, 33.0]) == pytest.approx((26.0, 9.7104, 42.2896), abs=2e-3)
    with pytest.raises(ValueError, match="expected 2 to"):
        mean_interval([1.0])
