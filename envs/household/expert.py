"""Experts that demonstrate household tasks: one that knows everything, one that has to search."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Literal, Protocol

from envs.household.engine import HouseholdState
from envs.household.plan import everything, plan
from envs.household.vocabulary import likelihood

Knowledge = Literal["seen", "full"]


class HasState(Protocol):
    """An environment whose live state an expert may read."""

    @property
    def state(self) -> HouseholdState: ...


class ExpertError(RuntimeError):
    """The expert has no way to win: the game cannot be won from this state."""


class HouseholdExpert:
    """Says the next command at any state of a live household, also after commands of others.

    ``knowledge="full"`` follows a shortest plan. ``"seen"`` uses only what the player has been shown:
    it looks into the likeliest receptacles first, cheap ones before dear ones, until it has found
    what it needs. ``randomness`` perturbs the search order (standard deviation of the log of a
    receptacle's worth), drawn from ``seed``.
    """

    def __init__(
        self, env: HasState, seed: int = 0, knowledge: Knowledge = "seen", randomness: float = 0.0
    ) -> None:
        if knowledge not in ("seen", "full"):
            raise ValueError(f"knowledge={knowledge!r}: expected 'seen' or 'full'")
        self._env, self._knowledge, self._randomness = env, knowledge, randomness
        self._rng = random.Random(seed)
        self._noise: dict[int, float] = {}

    def next_command(self) -> str:
        """The command an expert would give now. Raises ExpertError when nothing can win any more."""
        state = self._env.state
        if self._knowledge == "full":
            commands = plan(state, everything)
        else:
            commands = plan(state, state.seen.__contains__)
        if commands:
            return commands[0]
        command = self._search(state) if self._knowledge == "seen" else None
        if command is None:
            raise ExpertError(
                f"{state.game.source}: no way to: {state.game.task} (every place has been searched)"
            )
        return command

    def _search(self, state: HouseholdState) -> str | None:
        """Open or visit the unseen receptacle worth most."""
        game = state.game
        holding = state.held in game.goal_objects
        wanted = game.goal.lamp_type if holding and game.goal.lamp_type else game.goal.object_type
        unseen = [r for r, place in enumerate(game.place) if place >= 0 and r not in state.seen]
        if not unseen:
            return None
        counts = Counter(game.receptacle_types)
        worth = {r: self._worth(state, r, wanted, counts[game.receptacle_types[r]]) for r in unseen}
        best = max(unseen, key=lambda r: (worth[r], -_number(game.receptacles[r])))
        name = game.receptacles[best]
        if game.place[best] != state.location:
            return f"go to {name}"
        return f"open {name}" if not state.is_open(best) else f"examine {name}"

    def _worth(self, state: HouseholdState, receptacle: int, wanted: str, alike: int) -> float:
        """Chance of finding ``wanted`` in a receptacle, per command that it takes to look."""
        game = state.game
        here = game.place[receptacle] == state.location
        commands = (0 if here else 1) + (1 if here or game.openable[receptacle] else 0)
        chance = likelihood(wanted, game.receptacle_types[receptacle]) / alike
        if self._randomness:
            noise = self._noise.setdefault(receptacle, self._rng.gauss(0, self._randomness))
            chance *= math.exp(noise)
        return chance / commands


def _number(name: str) -> int:
    return int(name.rsplit(" ", 1)[1])
