"""The official ALFWorld engine, to compare ours with. Needs the extra ``[alfworld]``."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_VERBS_WITHOUT_EFFECT = ("look", "inventory", "help")


class Reply(NamedTuple):
    """What the engine says after a command; ``admissible`` is sorted and free of repeats."""

    text: str
    admissible: tuple[str, ...]
    score: float
    won: bool
    done: bool


class OfficialGame:
    """One game in the official engine (`alfworld` 0.4.2 on `textworld` 1.7.0), names as ALFWorld gives them.

    Raises ImportError naming the extra when the packages are missing.
    """

    def __init__(self, path: Path) -> None:
        try:
            with _plain_argv():
                import textworld
                from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
                from textworld.envs.pddl import PddlEnv
        except ImportError as error:
            message = (
                f"the official engine is missing ({error}); install it with: pip install 'memgrpo[alfworld]'"
            )
            raise ImportError(message) from error
        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        self._env: Any = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))
        self._env.load(str(path))

    def reset(self) -> Reply:
        """Start over."""
        state = self._env.reset()
        return Reply(state.feedback, tuple(state["admissible_commands"]), 0, bool(state["won"]), False)

    def step(self, command: str) -> Reply:
        """Play one command, admissible or not."""
        state, score, done = self._env.step(command)
        return Reply(
            state.feedback, tuple(state["admissible_commands"]), score, bool(state["won"]), bool(done)
        )


@contextmanager
def _plain_argv() -> Any:
    """ALFWorld parses the command line of whoever imports it; show it an empty one."""
    arguments, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = arguments


def random_command(admissible: Sequence[str], rng: random.Random) -> str:
    """A command for a random walk: a third refused or oddly written, the rest spread over the verbs."""
    verbs = sorted({command.split()[0] for command in admissible})
    if rng.random() < 0.5:
        verbs = [verb for verb in verbs if verb not in (*_VERBS_WITHOUT_EFFECT, "go")] or verbs
    verb = rng.choice(verbs)
    command = rng.choice([each for each in admissible if each.split()[0] == verb])
    if rng.random() >= 1 / 3:
        return command
    words = command.split()
    odd = (
        f"  {command} \n",
        command.upper(),
        command.capitalize(),
        command.replace(" ", "  ", 1),
        " ".join(words[:-1]),
        command.replace(verb, rng.choice(("open", "close", "take", "heat", "use", "slice", "examine")), 1),
        f"{command} please",
        f"go to {' '.join(words[-2:])}",
        f"take {' '.join(words[1:3])} from {' '.join(words[-2:])}",
        "",
    )
    return rng.choice(odd)
