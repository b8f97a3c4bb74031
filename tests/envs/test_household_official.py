"""Official games, and the official engine as the judge of ours: not one byte may differ."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest

from envs.household import HouseholdExpert, HouseholdWorld
from envs.household.engine import NOTHING_HAPPENS, HouseholdState
from envs.household.export import export_game
from envs.household.game import Game
from envs.household.oracle import OfficialGame, Reply, random_command
from envs.household.pddl import read_game

pytestmark = pytest.mark.data
needs_official_engine = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("alfworld", "textworld")),
    reason="the official engine is missing; install it with: pip install 'memgrpo[alfworld]'",
)


def _files(games: Path, *splits: str) -> list[Path]:
    world = HouseholdWorld(data=str(games))
    return [Path(task.payload["file"]) for split in splits for task in world.tasks(split)]


class OurGame:
    """Our engine, answering like the official one."""

    def __init__(self, path: Path) -> None:
        self._state = HouseholdState(Game(read_game(path)))

    def reset(self) -> Reply:
        return self._reply(self._state.intro())

    def step(self, command: str) -> Reply:
        reply = self._state.step(command)
        return self._reply(NOTHING_HAPPENS if reply is None else reply)

    def _reply(self, text: str) -> Reply:
        won = self._state.won
        return Reply(text, self._state.admissible, float(won), won, won)


def _compare_walk(path: Path, seed: int, steps: int = 30) -> None:
    ours, official, rng = OurGame(path), OfficialGame(path), random.Random(seed)
    reply = official.reset()
    assert ours.reset() == reply, path
    for _ in range(steps):
        command = random_command(reply.admissible, rng)
        reply = official.step(command)
        assert ours.step(command) == reply, (path, command)


def test_walkthroughs_of_all_validation_games_are_won(official_games: Path) -> None:
    files = _files(official_games, "valid_seen", "valid_unseen")
    assert len(files) == 140 + 134
    for file in files:
        ours = OurGame(file)
        ours.reset()
        *first, last = json.loads(file.read_text())["walkthrough"]
        assert not any(ours.step(command).won for command in first), file
        assert ours.step(last).won, file


def test_gold_is_as_short_as_the_official_walkthrough(official_games: Path) -> None:
    world = HouseholdWorld(data=str(official_games))
    env = world.make_env()
    for task in world.tasks("valid_unseen"):
        walkthrough = json.loads(Path(task.payload["file"]).read_text())["walkthrough"]
        assert len(env.gold(task)) == len(walkthrough)


def test_searching_expert_wins_official_games_within_fifty_steps(official_games: Path) -> None:
    world = HouseholdWorld(data=str(official_games))
    env = world.make_env()
    for task in world.tasks("valid_seen"):
        env.reset(task)
        expert = HouseholdExpert(env)
        for _ in range(50):
            if env.step(expert.next_command()).done:
                break
        assert env.state.won, task.task_id


def test_old_dialect_is_told_by_the_file(data_folder: Path) -> None:
    ours = OurGame(data_folder / "alfworld" / "old_dialect_sample" / "game.tw-pddl")
    first = ours.reset()
    assert "help" not in first.admissible
    assert ours.step(first.admissible[0]).text.startswith("You arrive at loc ")


@needs_official_engine
@pytest.mark.slow
def test_old_dialect_equals_the_official_engine(data_folder: Path) -> None:
    _compare_walk(data_folder / "alfworld" / "old_dialect_sample" / "game.tw-pddl", seed=1)


@needs_official_engine
def test_short_random_walks_equal_the_official_engine(official_games: Path) -> None:
    """One game of each kind, of those with the smallest files, since the official engine is slow."""
    files = sorted(_files(official_games, "valid_unseen"), key=lambda file: file.stat().st_size)
    smallest = {file.parent.parent.name.split("-")[0]: file for file in reversed(files)}
    assert len(smallest) == 6
    for seed, file in enumerate(smallest.values()):
        _compare_walk(file, seed, steps=8)


@needs_official_engine
@pytest.mark.slow
def test_two_hundred_random_walks_equal_the_official_engine(official_games: Path) -> None:
    files = _files(official_games, "train", "valid_seen", "valid_unseen")
    for seed, file in enumerate(random.Random(7).sample(files, 200)):
        _compare_walk(file, seed)


@needs_official_engine
@pytest.mark.slow
@pytest.mark.parametrize("wording", ["new", "old"])
def test_generated_games_play_alike_in_the_official_engine(tmp_path: Path, wording: str) -> None:
    world = HouseholdWorld(n_valid=6, n_receptacles=8, n_objects=8, closed=0.5, wording=wording)
    for seed, task in enumerate(world.tasks("valid_unseen")):
        file = export_game(task, tmp_path)
        ours, official = OurGame(file), OfficialGame(file)
        assert ours.reset() == official.reset()
        for command in world.make_env().gold(task):
            reply = official.step(command)
            assert ours.step(command) == reply
        assert reply.won
        _compare_walk(file, seed, steps=10)
