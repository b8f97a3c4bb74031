"""Values that memory passes on: entries of a bank and what a retrieval returned."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One distilled experience (MemHarness section 3.1: strategy ``e_i`` and source observation).

    ``uses`` counts retrievals and ``successes`` won trajectories that read the entry, both in
    training only.
    """

    entry_id: str
    text: str
    source_observation: str
    task_kind: str
    created_step: int = 0
    uses: int = 0
    successes: int = 0
    provenance: tuple[str, ...] = ()

    @property
    def utility(self) -> float:
        """Smoothed success rate of the trajectories that read this entry, in (0, 1)."""
        return (self.successes + 1) / (self.uses + 2)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """An entry found by a query, best first; ``score`` is the retriever's similarity."""

    entry: MemoryEntry
    score: float


@dataclass(frozen=True, slots=True)
class NewEntry:
    """What a distiller proposes; the bank decides whether it is kept."""

    text: str
    source_observation: str
    task_kind: str
    provenance: tuple[str, ...] = field(default=())
