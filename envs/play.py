"""A person, or the expert, plays a world in the terminal."""

from __future__ import annotations

import sys
from typing import TextIO

from envs.base import TextEnv, World
from envs.types import Task

_HELP = ("?", "help")
_QUIT = ("quit", "exit")


def play(
    world: World,
    split: str = "train",
    index: int = 0,
    gold: bool = False,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
) -> bool:
    """Play task ``index`` of ``split`` until it is done, left with `quit`, or the input ends.

    `?` or `help` lists the admissible commands. ``gold`` shows the expert's episode instead of asking.
    Returns whether the task was won. IndexError when the split has no such task.
    """
    lines, out = stdin or sys.stdin, stdout or sys.stdout
    tasks = world.tasks(split)
    if not 0 <= index < len(tasks):
        raise IndexError(
            f"{world.name} has {len(tasks)} tasks in {split}: expected an index below that, got {index}"
        )
    env = world.make_env()
    try:
        print(f"{tasks[index].task_id} ({tasks[index].kind})", file=out)
        won = _play_gold(env, tasks[index], out) if gold else _play_person(env, tasks[index], lines, out)
    finally:
        env.close()
    print("You won." if won else "Not won.", file=out)
    return won


def _play_gold(env: TextEnv, task: Task, out: TextIO) -> bool:
    commands = env.gold(task)
    print(f"\n{env.reset(task).text}", file=out)
    for command in commands:
        result = env.step(command)
        print(f"\n> {command}\n{result.observation.text}", file=out)
        if result.done:
            return result.success
    return False


def _play_person(env: TextEnv, task: Task, lines: TextIO, out: TextIO) -> bool:
    observation = env.reset(task)
    print(f"\n{observation.text}\n\n(? lists the commands, quit leaves)", file=out)
    while True:
        print("\n> ", end="", file=out, flush=True)
        line = lines.readline()
        command = line.strip()
        if not line or command in _QUIT:
            return False
        if command in _HELP:
            print("\n".join(observation.admissible) or "Anything may be tried.", file=out)
            continue
        result = env.step(command)
        observation = result.observation
        print(observation.text, file=out)
        if result.done:
            return result.success
