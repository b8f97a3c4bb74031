"""After a step: count what the memory was good for, distil new experience, prune."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agents.distill import Distiller, choose_trajectories
from agents.types import Status, Trajectory
from memory.types import NewEntry
from trainer.engine import Engine
from trainer.generate.hf import HFPolicy


def update_memory(
    bank: Any,
    groups: Sequence[Sequence[Trajectory]],
    *,
    distiller: Distiller | None,
    policy: HFPolicy,
    share: float,
    step: int,
    seed: int,
    engine: Engine,
) -> dict[str, float]:
    """Merge what this step's groups teach into ``bank``, alike on every rank; returns counts.

    ``share`` of the groups give one trajectory each to the distiller. Siblings never saw these
    writes: all episodes of the step had read the snapshot taken before it.
    """
    mine = _reads(groups)
    proposed: list[NewEntry] = []
    faults = 0
    if distiller is not None and bank.writable:
        proposed, faults = _distil(groups, distiller, policy, share, seed)
    counts: Counter[str] = Counter()
    for reads, success in (read for of_rank in engine.gather(mine) for read in of_rank):
        counts.update(bank.record(reads, success).metrics())
    everyone = [entry for of_rank in engine.gather(proposed) for entry in of_rank]
    counts.update(bank.insert(everyone, step).metrics())
    counts.update(bank.prune(step).metrics())
    counts["faults"] = sum(engine.gather(faults))
    return {f"memory/{name}": float(value) for name, value in {**counts, **bank.stats()}.items()}


def _reads(groups: Sequence[Sequence[Trajectory]]) -> list[tuple[list[tuple[str, ...]], bool]]:
    return [
        ([read.entry_ids for read in trajectory.memory_reads], trajectory.outcome.success)
        for group in groups
        for trajectory in group
        if trajectory.status is Status.OK and trajectory.memory_reads
    ]


def _distil(
    groups: Sequence[Sequence[Trajectory]],
    distiller: Distiller,
    policy: HFPolicy,
    share: float,
    seed: int,
) -> tuple[list[NewEntry], int]:
    chosen = choose_trajectories(groups, share, seed)

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(distiller.distill(t, policy, seed + i) for i, t in enumerate(chosen)))

    lessons = asyncio.run(all_at_once())
    entries = [lesson.entry for lesson in lessons if lesson.entry is not None]
    return entries, len(lessons) - len(entries)
