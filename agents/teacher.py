"""Teachers: who answers an agent's prompts in demonstrations, seeing the live environment."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

from agents.parsing import EMPTY
from agents.prompts import terse
from envs.base import TextEnv, World
from envs.household.expert import HouseholdExpert, Knowledge
from envs.types import Observation, StepResult, Task

Answer = Callable[[str, str], str]
"""``answer(stage, prompt) -> completion`` for one episode."""


class Teacher(Protocol):
    """Plays any episode of one world well enough to be imitated."""

    def attend(self, env: Any, task: Task) -> Answer:
        """Answers for the episode that ``env`` has just started."""
        ...


class HouseholdTeacher:
    """The household expert as a teacher of bare answers, for all stages of MemHarness.

    ``knowledge``: ``seen`` explores and knows only what the agent saw, ``full`` knows the house.
    ``randomness`` perturbs the order of its search. Queries ask for the goal. Reconstruction keeps
    which object to take where from the first remembered workflow that takes an object of the goal,
    when the present house has that sort of receptacle; else it rejects.
    """

    def __init__(self, knowledge: Knowledge = "seen", randomness: float = 0.0) -> None:
        self.knowledge: Knowledge = knowledge
        self.randomness = randomness

    def attend(self, env: Any, task: Task) -> Answer:
        expert = HouseholdExpert(env, seed=task.seed, knowledge=self.knowledge, randomness=self.randomness)
        game, opening = env.state.game, env.state.intro()

        def answer(stage: str, prompt: str) -> str:
            if stage == "query":
                return terse(game.task)
            if stage == "reconstruct":
                return _reconstruct(prompt, game.task, opening)
            return expert.next_command()

        return answer


def _reconstruct(prompt: str, goal: str, opening: str) -> str:
    """What of the remembered workflow fits: ``mug shelf`` if a mug is wanted and a shelf is here."""
    remembered = prompt.rpartition("memory ")[2]
    wanted = set(goal.rstrip(".").split())
    for command in re.findall(r"take (\w+) (?:from )?(\w+)", remembered):
        thing, place = command
        if thing in wanted and re.search(rf"\b{place} \d", opening):
            return f"{thing} {place}"
    return EMPTY


_answer: ContextVar[Answer] = ContextVar("answer")


def teacher_answer(stage: str, prompt: str) -> str:
    """The answer of the teacher who attends the episode that is being played in this async task."""
    return _answer.get()(stage, prompt)


class TaughtWorld:
    """A world whose every episode a teacher attends; `teacher_answer` speaks for it."""

    def __init__(self, world: World, teacher: Teacher) -> None:
        self.name = world.name
        self.tasks = world.tasks
        self._world = world
        self._teacher = teacher

    def make_env(self) -> TextEnv:
        return _TaughtEnv(self._world.make_env(), self._teacher)


class _TaughtEnv:
    """Tells the async task that resets it which teacher to ask."""

    def __init__(self, env: TextEnv, teacher: Teacher) -> None:
        self._env = env
        self._teacher = teacher

    def reset(self, task: Task) -> Observation:
        observation = self._env.reset(task)
        _answer.set(self._teacher.attend(self._env, task))
        return observation

    def step(self, action: str) -> StepResult:
        return self._env.step(action)

    def gold(self, task: Task) -> tuple[str, ...]:
        return self._env.gold(task)

    def close(self) -> None:
        self._env.close()
