"""The household behind the interface of every world: lists of tasks, and the environment that plays them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from envs.household.cache import load_game
from envs.household.data import GAME_FILE, SPLITS, find_games, game_files
from envs.household.engine import NOTHING_HAPPENS, HouseholdState
from envs.household.errors import GameDataError
from envs.household.game import Game, GameFacts
from envs.household.generate import Settings, draw_layout, generate_game
from envs.household.plan import plan
from envs.household.progress import goal_progress
from envs.household.vocabulary import KIND_ROOMS, TASK_KINDS
from envs.types import Observation, StepResult, Task

_GAMES_IN_MEMORY = 1024


class HouseholdEnv:
    """Plays household tasks. Reward 1 on winning, else 0; an episode ends only by winning."""

    def __init__(self) -> None:
        self._state: HouseholdState | None = None
        self._info: Mapping[str, Any] = MappingProxyType({})

    @property
    def state(self) -> HouseholdState:
        """The live state, which experts read. RuntimeError before the first `reset`."""
        if self._state is None:
            raise RuntimeError("no household task is being played; call reset(task) first")
        return self._state

    def reset(self, task: Task) -> Observation:
        """Start ``task``; ``info`` of every observation holds the goal sentence and the task kind."""
        self._state = state = HouseholdState(game_of(task))
        self._info = MappingProxyType({"goal": state.game.task, "kind": task.kind})
        return Observation(state.intro(), state.admissible, self._info)

    def step(self, action: str) -> StepResult:
        """Play a command; what is not admissible does nothing and has ``valid=False``."""
        state = self.state
        reply = state.step(action)
        won = state.won
        valid = reply is not None
        observation = Observation(
            reply if reply is not None else NOTHING_HAPPENS, state.admissible, self._info
        )
        info = {"progress": 1.0 if won else goal_progress(state)}
        return StepResult(observation, float(won), won, won, valid, info)

    def gold(self, task: Task) -> tuple[str, ...]:
        """Shortest commands that win ``task``."""
        commands = plan(HouseholdState(game_of(task)))
        if commands is None:
            raise GameDataError(f"task {task.task_id} cannot be won: no wanted object can be taken")
        return tuple(commands)

    def close(self) -> None:
        """Forget the episode."""
        self._state = None


def game_of(task: Task) -> Game:
    """The game that a task's payload describes, read or generated; the latest are kept in memory."""
    if "file" in task.payload:
        return _game_from_file(task.payload["file"])
    return _generated_game(*_recipe(task))


def generated_facts(task: Task) -> GameFacts:
    """Facts of a generated task. ValueError for a task that is read from a file."""
    if "file" in task.payload:
        raise ValueError(f"{task.task_id} is the game file {task.payload['file']}: expected a generated task")
    return _generate(*_recipe(task))


_Recipe = tuple[str, str, int, bool, int, Settings]


def _recipe(task: Task) -> _Recipe:
    payload = task.payload
    settings = Settings(**payload["settings"])
    return task.kind, payload["room"], payload["household"], payload["unseen"], task.seed, settings


def _generate(kind: str, room: str, household: int, unseen: bool, seed: int, settings: Settings) -> GameFacts:
    layout = draw_layout(room, household, unseen, settings.n_receptacles)
    return generate_game(kind, layout, seed, settings)


@lru_cache(maxsize=_GAMES_IN_MEMORY)
def _game_from_file(file: str) -> Game:
    return load_game(Path(file))


@lru_cache(maxsize=_GAMES_IN_MEMORY)
def _generated_game(
    kind: str, room: str, household: int, unseen: bool, seed: int, settings: Settings
) -> Game:
    return Game(_generate(kind, room, household, unseen, seed, settings))


class HouseholdWorld:
    """Household tasks: generated ones, or with ``data`` the official games found there (`find_games`).

    Generated: ``valid_seen`` has new tasks in the households of ``train``, ``valid_unseen`` other
    households, whose sets of receptacles ``train`` never has. The other options are those of
    `Settings`. With ``data``, the kind of a task is its folder's prefix and files are read only when
    played; ``n_train`` and ``n_valid`` then limit the lists (0: all), taken evenly over the folder.
    """

    name = "household"

    def __init__(
        self,
        data: str | None = None,
        n_train: int = 0,
        n_valid: int = 0,
        task_kinds: Sequence[str] = TASK_KINDS,
        n_households: int = 40,
        n_receptacles: int = 12,
        n_objects: int = 14,
        closed: float = 1.0,
        spread: float = 1.0,
        habit: float = 0.7,
        wording: str = "new",
        seed: int = 0,
    ) -> None:
        unknown = sorted(set(task_kinds) - set(TASK_KINDS))
        if unknown or not task_kinds:
            raise ValueError(f"task_kinds={list(task_kinds)}: expected some of {', '.join(TASK_KINDS)}")
        if n_households < 4:
            raise ValueError(f"n_households={n_households}: expected at least 4, one for each kind of room")
        self._settings = Settings(n_receptacles, n_objects, closed, spread, habit, wording)
        self._kinds, self._households, self._seed = tuple(task_kinds), n_households, seed
        self._sizes = {"train": n_train, "valid_seen": n_valid, "valid_unseen": n_valid}
        self._data = find_games(Path(data).expanduser()) if data else None
        self._lists: dict[str, tuple[Task, ...]] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of ``split``, always the same; kinds alternate where generated."""
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r} of household: expected one of {', '.join(SPLITS)}")
        if split not in self._lists:
            found = self._generated(split) if self._data is None else self._official(self._data, split)
            self._lists[split] = tuple(found)
        return self._lists[split]

    def make_env(self) -> HouseholdEnv:
        """A fresh environment."""
        return HouseholdEnv()

    def _generated(self, split: str) -> list[Task]:
        defaults = {"train": 2000, "valid_seen": 120, "valid_unseen": 120}
        settings = self._settings.payload()
        tasks = []
        for index in range(self._sizes[split] or defaults[split]):
            kind = self._kinds[index % len(self._kinds)]
            # Not Python's hash: it differs between processes.
            task_seed = zlib.crc32(f"{self._seed} {split} {index}".encode())
            rng = random.Random(task_seed)
            payload = {
                "room": rng.choice(KIND_ROOMS[kind]),
                "household": rng.randrange(self._households // 4) + 1000 * self._seed,
                "unseen": split == "valid_unseen",
                "settings": settings,
            }
            tasks.append(Task(f"household/{split}/{index:05d}", self.name, kind, split, task_seed, payload))
        return tasks

    def _official(self, data: Path, split: str) -> list[Task]:
        folder = data / split
        if not folder.is_dir():
            raise GameDataError(
                f"no folder {folder}: expected ALFWorld's {split} games there; set env.data to the folder "
                f"that holds {', '.join(SPLITS)}"
            )
        files = list(game_files(folder))
        if not files:
            raise GameDataError(f"no {GAME_FILE} below {folder}: unpack the ALFWorld games there")
        tasks = [self._official_task(file, data, split) for file in files]
        chosen = [task for task in tasks if task.kind in self._kinds]
        if not chosen:
            raise GameDataError(
                f"no game of kind {', '.join(self._kinds)} among the {len(files)} below {folder}"
            )
        limit = self._sizes[split] or len(chosen)
        return [chosen[i * len(chosen) // limit] for i in range(limit)] if limit < len(chosen) else chosen

    def _official_task(self, file: Path, data: Path, split: str) -> Task:
        name = file.parent.relative_to(data).as_posix()
        kind = file.parent.relative_to(data / split).parts[0].split("-")[0]
        return Task(name, self.name, kind, split, zlib.crc32(name.encode()), {"file": str(file)})
