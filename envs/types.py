"""Values that every world speaks: tasks, observations, step results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StopReason(StrEnum):
    """Why an episode ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    STEP_LIMIT = "step_limit"
    CONTEXT_LIMIT = "context_limit"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do in one world.

    ``kind`` groups tasks in evaluation tables (``pick_and_place_simple``). ``seed`` depends on the
    task alone, so that the same task list is played alike whatever the number of workers.
    ``payload`` is what the environment needs to build the episode (a game file, generator settings).
    """

    task_id: str
    env: str
    kind: str
    split: str
    seed: int
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """Text the agent sees and the commands the world accepts now (empty: anything may be tried)."""

    text: str
    admissible: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """Outcome of one action. ``reward`` is the world's own; ``valid`` is False for a refused command.

    ``info["progress"]``, where a world can tell, is the share of the goal that holds, in [0, 1].
    """

    observation: Observation
    reward: float
    done: bool
    success: bool
    valid: bool = True
    info: Mapping[str, Any] = field(default_factory=dict)
