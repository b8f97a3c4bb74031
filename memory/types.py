"""Values that memory passes on: entries of a bank and what a retrieval returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


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


@dataclass(frozen=True, slots=True)
class BankChange:
    """What one call did to the bank. ``duplicates`` holds the id that each refused entry repeats."""

    inserted: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    empty: int = 0
    evicted: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    stale_reads: int = 0
    """Uses reported for entries that are gone."""

    def metrics(self) -> dict[str, float]:
        """Counts by name, for the log."""
        return {
            "inserted": float(len(self.inserted)),
            "duplicates": float(len(self.duplicates)),
            "empty": float(self.empty),
            "evicted": float(len(self.evicted)),
            "pruned": float(len(self.pruned)),
            "stale_reads": float(self.stale_reads),
        }


class MemoryView(Protocol):
    """What an agent may do with memory during an episode: read it."""

    def retrieve(self, query: str, k: int = 3) -> tuple[Retrieved, ...]: ...
