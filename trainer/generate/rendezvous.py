"""Decides when to decode: once every live episode waits for a generation.

A wall clock would make batches, and with them the last bits of the log-probs, depend on how fast
an environment answers. Waiting for all episodes makes them depend on the requests alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class _Member:
    """A live episode and how many of its generations are under way."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting = 0


_current: ContextVar[_Member | None] = ContextVar("memgrpo_episode", default=None)


class Rendezvous:
    """Counts live episodes and those that wait.

    Episodes must not wait for each other by other means, or none would ever be decoded.
    """

    def __init__(self) -> None:
        self._live = 0
        self._blocked = 0
        self._changed: asyncio.Event | None = None

    @contextmanager
    def episode(self) -> Iterator[None]:
        """The caller's task, and every task it starts, is one live episode."""
        token = _current.set(_Member())
        self._live += 1
        try:
            yield
        finally:
            self._live -= 1
            self._notify()
            _current.reset(token)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The current episode waits for a generation."""
        member = _current.get()
        if member is not None:
            member.waiting += 1
            self._blocked += member.waiting == 1
        self._notify()
        try:
            yield
        finally:
            if member is not None:
                member.waiting -= 1
                self._blocked -= member.waiting == 0

    async def quiescent(self) -> None:
        """Return once every live episode waits and no runnable task is about to ask for more."""
        while True:
            # One round of the loop: tasks that just got their answer, or were just started, run first.
            self._changed = asyncio.Event()
            await asyncio.sleep(0)
            if self._changed.is_set():
                continue
            if self._blocked >= self._live:
                return
            await self._changed.wait()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
