"""Which tasks a training step plays: a fixed order that needs no state but the step."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.types import Task


def tasks_of_step(tasks: Sequence[Task], step: int, count: int, seed: int) -> list[Task]:
    """The ``count`` tasks of ``step`` (from 0): every task once before any comes again.

    Each pass over the list has its own order, fixed by ``seed`` and the pass.
    """
    if not tasks:
        raise ValueError("the task list is empty: found 0 tasks, expected at least 1; check env and split")
    chosen = []
    for position in range(step * count, (step + 1) * count):
        epoch, index = divmod(position, len(tasks))
        chosen.append(tasks[_order(len(tasks), epoch, seed)[index]])
    return chosen


def _order(length: int, epoch: int, seed: int) -> list[int]:
    order = list(range(length))
    random.Random(f"{seed}:{epoch}").shuffle(order)
    return order
