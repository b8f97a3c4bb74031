"""The MemHarness experience bank: insert with dedup, retrieve, score by use, prune, save and restore."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from memory.errors import UserError
from memory.retrieval import Embedder, FloatArray, VectorStore, top_k
from memory.types import BankChange, MemoryEntry, NewEntry, Retrieved

STATE_FORMAT = 1
_ROUNDING = 1e-6
"""Two float32 copies of one unit vector have a product this close to 1."""


class BankStateError(UserError):
    """A saved bank does not fit this program or this embedder."""


class BankSnapshot:
    """The bank as it was when the snapshot was taken; later writes do not show. Read only."""

    def __init__(
        self,
        entries: tuple[MemoryEntry, ...],
        vectors_ND: FloatArray,
        embedder: Embedder,
        dedup_threshold: float,
    ) -> None:
        self.entries = entries
        self._vectors_ND = vectors_ND
        self._embedder = embedder
        self._dedup_threshold = dedup_threshold

    def __len__(self) -> int:
        return len(self.entries)

    def retrieve(self, query: str, k: int = 3) -> tuple[Retrieved, ...]:
        """Up to ``k`` entries by cosine of query and entry text, best first.

        An entry too similar to a better one is left out and the next best takes its place.
        """
        if k < 1:
            raise ValueError(f"k is {k}; expected at least 1")
        if not self.entries:
            return ()
        query_D = self._embedder.embed([query])[0]
        wanted = k
        while True:
            rows, scores = top_k(self._vectors_ND, query_D, wanted)
            kept = self._without_duplicates(rows.tolist())
            if len(kept) >= k or wanted >= len(self.entries):
                break
            wanted *= 2
        return tuple(Retrieved(self.entries[rows[i]], float(scores[i])) for i in kept[:k])

    def _without_duplicates(self, rows: Sequence[int]) -> list[int]:
        vectors_KD = self._vectors_ND[list(rows)]
        cosine_KK = vectors_KD @ vectors_KD.T
        kept: list[int] = []
        for i in range(len(rows)):
            if all(cosine_KK[i, j] < self._dedup_threshold - _ROUNDING for j in kept):
                kept.append(i)
        return kept


class ExperienceBank:
    """Distilled experiences with utilities (MemHarness section 3.1; `MemoryEntry.utility`).

    All writes go through one owner between groups; episodes get a `snapshot()`. Entry ids count up
    and are never reused, so equal calls give equal banks.

    Args:
        embedder: makes the vectors for dedup and retrieval.
        dedup_threshold: cosine from which two texts are the same experience, in (0, 1].
        prune_every: steps between prunings.
        prune_below: utility under which an entry is pruned ...
        prune_min_uses: ... once it was used this often.
        capacity: most entries kept; the lowest utility leaves first, the oldest among equals.
    """

    writable = True

    def __init__(
        self,
        embedder: Embedder,
        *,
        dedup_threshold: float = 0.85,
        prune_every: int = 20,
        prune_below: float = 0.3,
        prune_min_uses: int = 3,
        capacity: int = 10_000,
    ) -> None:
        _check("dedup_threshold", dedup_threshold, 0 < dedup_threshold <= 1, "a cosine in (0, 1]")
        _check("prune_every", prune_every, prune_every >= 1, "at least 1 step")
        _check("prune_below", prune_below, 0 <= prune_below <= 1, "a utility in [0, 1]")
        _check("prune_min_uses", prune_min_uses, prune_min_uses >= 1, "at least 1 use")
        _check("capacity", capacity, capacity >= 1, "at least 1 entry")
        self.embedder = embedder
        self.dedup_threshold = dedup_threshold
        self.prune_every = prune_every
        self.prune_below = prune_below
        self.prune_min_uses = prune_min_uses
        self.capacity = capacity
        self._entries: list[MemoryEntry] = []
        self._row_of: dict[str, int] = {}
        self._vectors = VectorStore()
        self._created = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[MemoryEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def snapshot(self) -> BankSnapshot:
        """A read-only view of now. Costs one tuple of references; the vectors are shared."""
        return BankSnapshot(self.entries, self._vectors.rows_ND, self.embedder, self.dedup_threshold)

    def retrieve(self, query: str, k: int = 3) -> tuple[Retrieved, ...]:
        """See `BankSnapshot.retrieve`. Reading does not count as a use; `record` does."""
        return self.snapshot().retrieve(query, k)

    def insert(self, proposed: Sequence[NewEntry], step: int) -> BankChange:
        """Add the entries that repeat neither the bank nor an earlier one of the same call."""
        wanted = [entry for entry in proposed if entry.text.strip()]
        vectors_ND = self.embedder.embed([entry.text for entry in wanted])
        inserted: list[str] = []
        duplicates: list[str] = []
        for entry, vector_D in zip(wanted, vectors_ND, strict=True):
            twin = self._find_duplicate(vector_D)
            if twin is not None:
                duplicates.append(twin)
                continue
            self._created += 1
            added = MemoryEntry(
                entry_id=f"m{self._created:06d}",
                text=entry.text,
                source_observation=entry.source_observation,
                task_kind=entry.task_kind,
                created_step=step,
                provenance=entry.provenance,
            )
            self._row_of[added.entry_id] = len(self._entries)
            self._entries.append(added)
            self._vectors.append(vector_D)
            inserted.append(added.entry_id)
        return BankChange(
            inserted=tuple(inserted),
            duplicates=tuple(duplicates),
            empty=len(proposed) - len(wanted),
            evicted=self._evict(),
        )

    def record(self, reads: Iterable[Sequence[str]], success: bool) -> BankChange:
        """Count the retrievals of one finished training trajectory.

        ``reads`` has the entry ids of each retrieval. Every retrieval is a use of its entries; a won
        trajectory is one success for each distinct entry that it read.
        """
        uses = Counter(entry_id for entry_ids in reads for entry_id in entry_ids)
        stale_reads = 0
        for entry_id, count in uses.items():
            row = self._row_of.get(entry_id)
            if row is None:
                stale_reads += count
                continue
            entry = self._entries[row]
            self._entries[row] = replace(
                entry, uses=entry.uses + count, successes=entry.successes + int(success)
            )
        return BankChange(stale_reads=stale_reads)

    def prune(self, step: int) -> BankChange:
        """Every ``prune_every`` finished steps, drop entries that were used often and help seldom."""
        if step < 1 or step % self.prune_every:
            return BankChange()
        doomed = {
            entry.entry_id
            for entry in self._entries
            if entry.uses >= self.prune_min_uses and entry.utility < self.prune_below
        }
        return BankChange(pruned=self._remove(doomed))

    def stats(self) -> dict[str, float]:
        """Size, mean utility, and uses per entry (utility and uses are 0 for an empty bank)."""
        count = len(self._entries)
        return {
            "size": float(count),
            "utility_mean": sum(e.utility for e in self._entries) / max(count, 1),
            "uses_mean": sum(e.uses for e in self._entries) / max(count, 1),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything `load_state_dict` needs, as JSON values. Vectors are kept, so that nothing is
        embedded again and restored retrieval is exact."""
        rows_ND = self._vectors.rows_ND
        return {
            "format": STATE_FORMAT,
            "embedder": self.embedder.name,
            "created": self._created,
            "entries": [{**asdict(e), "provenance": list(e.provenance)} for e in self._entries],
            "vectors": {
                "shape": list(rows_ND.shape),
                "float32_base64": base64.b64encode(rows_ND.astype("<f4").tobytes()).decode(),
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the content. BankStateError, with nothing changed, when ``state`` does not fit."""
        if state.get("format") != STATE_FORMAT:
            raise BankStateError(
                f"saved bank has format {state.get('format')!r}, this version reads format {STATE_FORMAT}; "
                "load it with the memgrpo version that wrote it"
            )
        if state["embedder"] != self.embedder.name:
            raise BankStateError(
                f"saved bank was embedded by {state['embedder']!r}, this run embeds with "
                f"{self.embedder.name!r}; set the retriever of the saved run, or start with a new bank"
            )
        entries = [MemoryEntry(**{**e, "provenance": tuple(e["provenance"])}) for e in state["entries"]]
        shape = tuple(state["vectors"]["shape"])
        raw = np.frombuffer(base64.b64decode(state["vectors"]["float32_base64"]), dtype="<f4")
        if len(shape) != 2 or shape[0] != len(entries) or raw.size != shape[0] * shape[1]:
            raise BankStateError(
                f"saved bank has {len(entries)} entries but {raw.size} vector values of shape {shape}; "
                "the file is damaged, resume from an earlier checkpoint"
            )
        self._replace_content(entries, VectorStore(raw.reshape(shape).astype(np.float32)))
        self._created = int(state["created"])

    def _find_duplicate(self, vector_D: FloatArray) -> str | None:
        if not self._entries:
            return None
        rows, scores = top_k(self._vectors.rows_ND, vector_D, 1)
        return self._entries[rows[0]].entry_id if scores[0] >= self.dedup_threshold - _ROUNDING else None

    def _evict(self) -> tuple[str, ...]:
        excess = len(self._entries) - self.capacity
        if excess <= 0:
            return ()
        lowest_first = sorted(self._entries, key=lambda entry: entry.utility)
        return self._remove({entry.entry_id for entry in lowest_first[:excess]})

    def _remove(self, entry_ids: set[str]) -> tuple[str, ...]:
        if not entry_ids:
            return ()
        kept = [row for row, entry in enumerate(self._entries) if entry.entry_id not in entry_ids]
        removed = tuple(e.entry_id for e in self._entries if e.entry_id in entry_ids)
        self._replace_content([self._entries[row] for row in kept], VectorStore(self._vectors.rows_ND[kept]))
        return removed

    def _replace_content(self, entries: list[MemoryEntry], vectors: VectorStore) -> None:
        self._entries = entries
        self._vectors = vectors
        self._row_of = {entry.entry_id: row for row, entry in enumerate(entries)}


def _check(name: str, value: float, ok: bool, expected: str) -> None:
    if not ok:
        raise ValueError(f"memory.{name} is {value}; expected {expected}")
