"""What a world must offer: a `World` lists tasks and makes environments, a `TextEnv` plays one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from envs.types import Observation, StepResult, Task


@runtime_checkable
class TextEnv(Protocol):
    """One live episode at a time; `reset` starts the next. Not shared between episodes."""

    def reset(self, task: Task) -> Observation:
        """Start ``task`` and return its first observation, which states the task."""
        ...

    def step(self, action: str) -> StepResult:
        """Play one command. A refused command is a result with ``valid=False``, never an exception."""
        ...

    def gold(self, task: Task) -> tuple[str, ...]:
        """Actions that win ``task`` from its start."""
        ...

    def close(self) -> None:
        """Release what the environment holds. Calling it twice is allowed."""
        ...


@runtime_checkable
class World(Protocol):
    """A family of tasks and the environment that plays them; the `env` config group builds one."""

    name: str

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of ``split`` in a fixed order. Unknown split: ValueError that lists the known ones."""
        ...

    def make_env(self) -> TextEnv:
        """A fresh environment."""
        ...


class AsyncTextEnv(Protocol):
    """What an agent awaits; the rollout hands it out, in this process or in a worker."""

    async def reset(self, task: Task) -> Observation: ...

    async def step(self, action: str) -> StepResult: ...


class InProcessEnv:
    """A `TextEnv` awaited in this process: right for worlds whose step costs microseconds."""

    def __init__(self, env: TextEnv) -> None:
        self._env = env

    async def reset(self, task: Task) -> Observation:
        return self._env.reset(task)

    async def step(self, action: str) -> StepResult:
        return self._env.step(action)
