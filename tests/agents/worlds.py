"""A small real world for agent tests: a light that must be switched on."""

from __future__ import annotations

from collections.abc import Sequence

from envs.base import TextEnv
from envs.types import Observation, StepResult, Task

LIGHT = Task(task_id="light-0", env="light", kind="light", split="train", seed=7)


class LightEnv:
    """``go to lamp`` and then ``use lamp`` wins; anything else is refused."""

    COMMANDS = ("go to lamp", "use lamp", "wait")

    def reset(self, task: Task) -> Observation:
        self.near = False
        text = "You are in a dark room with a lamp. Your task is to: switch on the lamp"
        return Observation(text, self.COMMANDS, {"goal": "switch on the lamp"})

    def step(self, action: str) -> StepResult:
        valid = action in self.COMMANDS
        won = action == "use lamp" and self.near
        self.near = self.near or action == "go to lamp"
        text = "You did it." if won else f"You tried: {action}." if valid else "Nothing happens."
        return StepResult(Observation(text, self.COMMANDS), float(won), won, won, valid)

    def gold(self, task: Task) -> tuple[str, ...]:
        return ("go to lamp", "use lamp")

    def close(self) -> None:
        pass


class LightWorld:
    name = "light"

    def tasks(self, split: str) -> Sequence[Task]:
        return [LIGHT]

    def make_env(self) -> TextEnv:
        return LightEnv()
