"""Memory that stays empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memory.bank import STATE_FORMAT, BankStateError
from memory.types import BankChange, MemoryEntry, NewEntry, Retrieved


class NoMemory:
    """Stands where a bank would, for agents that have none: finds nothing, keeps nothing."""

    writable = False
    entries: tuple[MemoryEntry, ...] = ()

    def __len__(self) -> int:
        return 0

    def snapshot(self) -> NoMemory:
        return self

    def retrieve(self, query: str, k: int = 3) -> tuple[Retrieved, ...]:
        return ()

    def insert(self, proposed: Sequence[NewEntry], step: int) -> BankChange:
        if proposed:
            raise TypeError("NoMemory keeps no entries; choose memory=experience_bank to collect experience")
        return BankChange()

    def record(self, reads: Iterable[Sequence[str]], success: bool) -> BankChange:
        return BankChange()

    def prune(self, step: int) -> BankChange:
        return BankChange()

    def stats(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"format": STATE_FORMAT, "embedder": None, "entries": []}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["entries"]:
            raise BankStateError(
                f"the checkpoint has a bank of {len(state['entries'])} entries but this run has memory=none; "
                "set the memory of the saved run"
            )
