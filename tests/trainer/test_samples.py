"""Rows from turns, micro-batches from rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.trainer.make import random_samples, report, trajectory, turn
from trainer.advantage import grpo_no_std
from trainer.samples import micro_batches, pad_count, train_samples
from trainer.types import TrainSample


def rows_of(
    *turns: object, kl_on_tied: bool = True, rewards: tuple[float, float] = (1.0, 0.0)
) -> list[TrainSample]:
    """Rows of a trajectory with these turns whose sibling has none."""
    group = [trajectory("a", turns=turns), trajectory("b", turns=0)]  # type: ignore[arg-type]
    return train_samples(group, grpo_no_std(group, report(*rewards)), kl_on_tied=kl_on_tied)


def test_prompt_that_extends_the_row_is_merged_exactly() -> None:
    first = turn([1, 2], [3, 4], allowed=((3, 9), None))
    second = turn([1, 2, 3, 4, 5], [6])
    third = turn([1, 2, 3, 4, 5, 6], [7])
    (row,) = rows_of(first, second, third)
    assert row.input_ids == (1, 2, 3, 4, 5, 6, 7)
    assert row.loss_mask == (0, 0, 1, 1, 0, 1, 1)
    assert row.behaviour_logprobs == (0.0, 0.0, -0.1, -0.2, 0.0, -0.1, -0.1)
    assert row.advantages == (0.0, 0.0, 0.5, 0.5, 0.0, 0.5, 0.5)
    assert row.allowed == (None, None, (3, 9), None, None, None, None)
    assert (row.trajectory_id, row.policy_version, row.use_kl) == ("a", 0, True)


@pytest.mark.parametrize(
    "second",
    [
        turn([1, 2, 3, 8, 5], [6]),
        turn([1, 2, 3], [6]),
        turn([5, 1, 2, 3, 4], [6]),
        turn([1, 2, 3, 4], [6], version=1),
    ],
    ids=["retokenised", "shorter", "shifted", "other policy"],
)
def test_other_turns_start_a_row(second: object) -> None:
    rows = rows_of(turn([1, 2], [3, 4]), second)
    assert [row.input_ids[-1] for row in rows] == [4, 6]
    assert sum(sum(row.loss_mask) for row in rows) == 3


def test_turn_without_completion_is_left_out_and_does_not_break_a_row() -> None:
    (row,) = rows_of(turn([1, 2], [3]), turn([7], []), turn([1, 2, 3], [4]))
    assert row.input_ids == (1, 2, 3, 4)


def test_masked_trajectory_gives_no_row() -> None:
    group = [trajectory(name) for name in "abc"]
    rows = train_samples(group, grpo_no_std(group, report(1.0, None, 0.0)))
    assert [row.trajectory_id for row in rows] == ["a", "c"]


def test_kl_of_a_tied_group_can_be_off() -> None:
    tied = {"rewards": (1.0, 1.0)}
    assert not rows_of(turn([1], [2]), kl_on_tied=False, **tied)[0].use_kl  # type: ignore[arg-type]
    assert rows_of(turn([1], [2]), **tied)[0].use_kl  # type: ignore[arg-type]
    assert rows_of(turn([1], [2]), kl_on_tied=False)[0].use_kl


def test_turn_that_cannot_be_scored_is_named() -> None:
    with pytest.raises(ValueError, match=r"turn 1 \(act\) of trajectory a has an empty prompt"):
        rows_of(turn([1], [2]), turn([], [3]))
    with pytest.raises(ValueError, match=r"has 2 completion tokens, but \{'logprobs': 1\}"):
        rows_of(replace(turn([1], [2, 3]), logprobs=(-0.1,)))


def test_every_row_once_within_the_budget_longest_first() -> None:
    samples = random_samples(0, 40)
    batches = micro_batches(samples, max_tokens=100)
    assert sorted(i for batch in batches for i in batch.rows) == list(range(40))
    lengths = [len(samples[i].input_ids) for batch in batches for i in batch.rows]
    assert lengths == sorted(lengths, reverse=True)
    assert all(batch.input_ids_BT.numel() <= 100 for batch in batches)
    assert [batch.rows for batch in micro_batches(samples, 100)] == [batch.rows for batch in batches]


def test_batch_holds_the_samples() -> None:
    samples = random_samples(1, 7)
    (batch,) = micro_batches(samples, max_tokens=10_000)
    limited = iter([] if batch.allowed_MK is None else batch.allowed_MK.tolist())
    flags = iter([] if batch.limited_N is None else batch.limited_N.tolist())
    for b, i in enumerate(batch.rows):
        n = len(samples[i].input_ids)
        assert tuple(batch.input_ids_BT[b, :n].tolist()) == samples[i].input_ids
        assert tuple(batch.loss_mask_BT[b].int().tolist()[:n]) == samples[i].loss_mask
        assert batch.loss_mask_BT[b, n:].sum() == 0
        torch.testing.assert_close(batch.advantages_BT[b, :n], torch.tensor(samples[i].advantages))
        torch.testing.assert_close(
            batch.behaviour_logprobs_BT[b, :n], torch.tensor(samples[i].behaviour_logprobs)
        )
        for ids, trained in zip(samples[i].allowed or (), samples[i].loss_mask, strict=True):
            if trained:
                assert next(flags) == (ids is not None)
                if ids is not None:
                    assert tuple(x for x in next(limited) if x >= 0) == ids
    assert next(flags, None) is None
    assert next(limited, None) is None


def test_row_longer_than_the_budget_is_alone() -> None:
    batches = micro_batches(random_samples(2, 5, longest=24), max_tokens=3)
    assert [len(batch.rows) for batch in batches] == [1] * 5


def test_count_pads_with_masked_batches() -> None:
    batches = micro_batches(random_samples(3, 4), max_tokens=10_000, count=3)
    assert [len(batch.rows) for batch in batches] == [4, 0, 0]
    assert not batches[1].loss_mask_BT.any()
    assert [batch.rows for batch in micro_batches([], 10, count=2)] == [(), ()]
    with pytest.raises(ValueError, match="3 micro-batches, count is 2"):
        pad_count(batches, 2)


def test_impossible_rows_are_refused() -> None:
    (row,) = random_samples(4, 1)
    with pytest.raises(ValueError, match="nothing precedes it"):
        micro_batches([replace(row, loss_mask=(1, *row.loss_mask[1:]))], 100)
    with pytest.raises(ValueError, match="wrote token"):
        micro_batches([replace(row, allowed=tuple((99,) for _ in row.input_ids))], 100)
    some = [replace(row, reference_logprobs=row.behaviour_logprobs), row]
    with pytest.raises(ValueError, match="1 of 2 rows have reference log-probs"):
        micro_batches(some, 100)
