"""Key/value cache in slots: a slot keeps one sequence, and stays with its session between turns."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from torch import Tensor

CACHE_BYTES = 4 * 2**30
"""Upper bound of the whole cache. Sessions beyond it lose their prefix, oldest first."""


class SlotCache:
    """Keys and values per layer, each of shape (S slots, K heads, C positions, D).

    Slots and positions grow by doubling, so a short run stays small.
    """

    def __init__(self, context_length: int, slots: int) -> None:
        self.context_length = context_length
        self.slots = slots
        self.capacity = min(context_length, 256)
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}

    def layer(self, index: int, like_NKD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, made on first use."""
        if index not in self.keys:
            shape = (self.slots, like_NKD.shape[1], self.capacity, like_NKD.shape[2])
            self.keys[index] = like_NKD.new_zeros(shape)
            self.values[index] = like_NKD.new_zeros(shape)
        return self.keys[index], self.values[index]

    def reserve(self, positions: int) -> None:
        """Make room for ``positions`` tokens in every slot."""
        if positions > self.capacity:
            self.resize(self.slots, min(self.context_length, max(positions, 2 * self.capacity)))

    def add_slots(self) -> bool:
        """Double the number of slots; False where that would pass the memory bound."""
        if 2 * self.nbytes() > CACHE_BYTES:
            return False
        self.resize(2 * self.slots, self.capacity)
        return True

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of a slot to another."""
        for tensors in (self.keys, self.values):
            for tensor in tensors.values():
                tensor[target, :, :length] = tensor[source, :, :length]

    def nbytes(self) -> int:
        return sum(t.nbytes for tensors in (self.keys, self.values) for t in tensors.values())

    def resize(self, slots: int, capacity: int) -> None:
        for tensors in (self.keys, self.values):
            for index, old in tensors.items():
                # Zeros, not empty: a masked position still enters 0 * value, and 0 * nan is nan.
                new = old.new_zeros((slots, old.shape[1], capacity, old.shape[3]))
                new[: self.slots, :, : self.capacity] = old
                tensors[index] = new
        self.slots, self.capacity = slots, capacity


class SlotTable:
    """Who owns which slot, and which tokens its cache holds."""

    def __init__(self, cache: SlotCache) -> None:
        self.cache = cache
        self.tokens: dict[int, Sequence[int]] = {}
        self._free = list(range(cache.slots))
        self._idle: dict[str, int] = {}
        self._prompts: dict[tuple[int, ...], int] = {}

    def take(self, session: str) -> int:
        """A slot for a request of ``session``: the one it left behind, a free one, or the oldest idle."""
        if session in self._idle:
            return self._idle.pop(session)
        if not self._free:
            before = self.cache.slots
            if self.cache.add_slots():
                self._free.extend(range(before, self.cache.slots))
        if self._free:
            slot = heapq.heappop(self._free)
        elif self._idle:
            oldest = next(iter(self._idle))
            slot = self._idle.pop(oldest)
        else:
            # Every slot is decoding: the batch is the bound then, not the cache's memory.
            before = self.cache.slots
            self.cache.resize(2 * before, self.cache.capacity)
            self._free.extend(range(before, self.cache.slots))
            slot = heapq.heappop(self._free)
        self.tokens[slot] = ()
        return slot

    def move_down(self, slot: int) -> int | None:
        """Hand a row of ``slot`` the lowest free slot, if that is below its own."""
        if not self._free or self._free[0] > slot:
            return None
        target = heapq.heapreplace(self._free, slot)
        self.tokens[target] = self.tokens.pop(slot)
        return target

    def give_back(self, slot: int, session: str, tokens: Sequence[int]) -> None:
        """Keep ``tokens`` of a finished row for the session's next turn (no session: free the slot)."""
        self.tokens[slot] = tokens
        if session and session not in self._idle:
            self._idle[session] = slot
        else:
            heapq.heappush(self._free, slot)

    def twin(self, prompt: tuple[int, ...]) -> int | None:
        """Slot that holds, or is about to hold, exactly this prompt."""
        slot = self._prompts.get(prompt)
        if slot is None or common_prefix(self.tokens.get(slot, ()), prompt) < len(prompt):
            return None
        return slot

    def holds(self, slot: int, prompt: tuple[int, ...]) -> None:
        """Note that ``slot`` holds, or is about to hold, this prompt."""
        self.tokens[slot] = prompt
        if len(self._prompts) > 4096:
            self._prompts.clear()
        if self.twin(prompt) is None:
            self._prompts[prompt] = slot

    def clear(self) -> None:
        """Forget everything: the weights have changed."""
        self.tokens.clear()
        self._idle.clear()
        self._prompts.clear()
        self._free = list(range(self.cache.slots))


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if tuple(left[low:middle]) == tuple(right[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low
