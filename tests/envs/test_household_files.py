"""Game files: written and read back, cached, found in folders, refused when broken."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from envs.household import GameDataError, GameFileError, HouseholdWorld
from envs.household.cache import load_game
from envs.household.export import export_game
from envs.household.pddl import parse_game, read_game
from envs.household.vocabulary import TASK_KINDS
from envs.household.world import game_of, generated_facts
from envs.types import Task


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMGRPO_CACHE", str(tmp_path / "cache"))


def _tasks(wording: str = "new", split: str = "valid_unseen") -> list[Task]:
    return list(HouseholdWorld(n_train=12, n_valid=12, closed=0.5, wording=wording).tasks(split))


def _broken(tmp_path: Path, change: Any) -> Path:
    """A game file whose JSON object went through ``change``."""
    file = export_game(_tasks()[0], tmp_path / "games")
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    return file


@pytest.mark.parametrize("wording", ["new", "old"])
def test_exported_games_are_read_back_as_they_were(tmp_path: Path, wording: str) -> None:
    for task in _tasks(wording):
        written = generated_facts(task)
        read = read_game(export_game(task, tmp_path))
        assert (read.task, read.wording, read.goal) == (written.task, written.wording, written.goal)
        assert {name: sorted(rows) for name, rows in read.facts.items()} == {
            name: sorted(rows) for name, rows in written.facts.items()
        }


def test_exported_games_form_a_world_of_their_own(tmp_path: Path) -> None:
    for split in ("train", "valid_seen", "valid_unseen"):
        for task in _tasks(split=split):
            export_game(task, tmp_path / "homes")
    world = HouseholdWorld(data=str(tmp_path / "homes"))
    for split in ("train", "valid_seen", "valid_unseen"):
        tasks = world.tasks(split)
        assert len(tasks) == 12
        assert {task.kind for task in tasks} == set(TASK_KINDS)
    env = world.make_env()
    walkthrough = json.loads(Path(tasks[0].payload["file"]).read_text())["walkthrough"]
    assert list(env.gold(tasks[0])) == walkthrough
    with pytest.raises(ValueError, match="expected a generated task"):
        generated_facts(tasks[0])


def test_lists_can_be_limited_by_number_and_kind(tmp_path: Path) -> None:
    for task in _tasks(split="train"):
        export_game(task, tmp_path / "homes")
    assert len(HouseholdWorld(data=str(tmp_path / "homes"), n_train=5).tasks("train")) == 5
    kinds = HouseholdWorld(data=str(tmp_path / "homes"), task_kinds=["look_at_obj_in_light"])
    assert [task.kind for task in kinds.tasks("train")] == ["look_at_obj_in_light"] * 2


def test_listing_opens_no_game(tmp_path: Path) -> None:
    file = export_game(_tasks(split="train")[0], tmp_path / "homes")
    file.write_text("not a game")
    (task,) = HouseholdWorld(data=str(tmp_path / "homes")).tasks("train")
    with pytest.raises(GameFileError, match="broken JSON"):
        game_of(task)


def test_archives_are_unpacked_once(tmp_path: Path) -> None:
    for task in _tasks(split="train"):
        export_game(task, tmp_path / "games" / "json")
    archive = tmp_path / "data" / "games.tar.xz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:xz") as opened:
        opened.add(tmp_path / "games" / "json", "json")
    first = [task.payload["file"] for task in HouseholdWorld(data=str(archive)).tasks("train")]
    assert len(first) == 12 and all(Path(file).is_file() for file in first)
    archive.parent.joinpath("readme.txt").touch()
    assert [task.payload["file"] for task in HouseholdWorld(data=str(archive.parent)).tasks("train")] == first


def test_damaged_archives_leave_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "games.tar.xz"
    archive.write_bytes(b"\xfd7zXZ\x00 broken")
    with pytest.raises(GameDataError, match="fetch the archive again"):
        HouseholdWorld(data=str(archive))
    assert not list((tmp_path / "cache" / "alfworld").iterdir())


def test_folders_without_games_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GameDataError, match=r"no ALFWorld games at .*set env\.data"):
        HouseholdWorld(data=str(tmp_path / "nowhere"))
    with pytest.raises(GameDataError, match="no ALFWorld games at"):
        HouseholdWorld(data=str(tmp_path))
    (tmp_path / "train").mkdir()
    with pytest.raises(GameDataError, match=r"no game\.tw-pddl below"):
        HouseholdWorld(data=str(tmp_path)).tasks("train")
    with pytest.raises(GameDataError, match=r"no folder .*valid_seen"):
        HouseholdWorld(data=str(tmp_path)).tasks("valid_seen")
    export_game(_tasks(split="train")[0], tmp_path)
    with pytest.raises(GameDataError, match="no game of kind look_at_obj_in_light"):
        HouseholdWorld(data=str(tmp_path), task_kinds=["look_at_obj_in_light"]).tasks("train")


def test_cache_is_used_and_notices_changed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, other = _tasks()[:2]
    file = export_game(task, tmp_path / "games")
    first = load_game(file)
    monkeypatch.setattr("envs.household.cache.read_game", _refuse)
    cached = load_game(file)
    assert (cached.task, cached.objects, cached.contents) == (first.task, first.objects, first.contents)
    monkeypatch.undo()
    monkeypatch.setenv("MEMGRPO_CACHE", str(tmp_path / "cache"))
    file.write_text(export_game(other, tmp_path / "games").read_text())
    os.utime(file, ns=(1, 1))
    assert load_game(file).task == generated_facts(other).task


def _refuse(path: Path) -> None:
    raise AssertionError(f"{path} was parsed again")


def test_damaged_cache_entries_are_written_again(tmp_path: Path) -> None:
    file = export_game(_tasks()[0], tmp_path / "games")
    game = load_game(file)
    (entry,) = (tmp_path / "cache" / "household").rglob("*.json")
    whole = entry.read_text()
    entry.write_text(whole[: len(whole) // 2])
    assert load_game(file).task == game.task
    assert entry.read_text() == whole


def test_truncated_file_names_file_expectation_and_remedy(tmp_path: Path) -> None:
    file = export_game(_tasks()[0], tmp_path)
    text = file.read_text()
    file.write_text(text[: len(text) // 2])
    with pytest.raises(GameFileError) as raised:
        read_game(file)
    message = str(raised.value)
    assert str(file) in message and "truncated" in message
    assert "Unpack the ALFWorld data again" in message


def test_missing_and_undecodable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GameFileError, match="cannot be read"):
        load_game(tmp_path / "game.tw-pddl")
    (tmp_path / "game.tw-pddl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GameFileError, match="UTF-8"):
        load_game(tmp_path / "game.tw-pddl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("grammar"), "an object with the texts"),
        (lambda data: data.update(pddl_domain=data["pddl_domain"].replace("holdsAny", "holds2")), "rules"),
        (
            lambda data: data.update(grammar=data["grammar"].replace("You open", "Open")),
            "OpenObject.feedback",
        ),
        (lambda data: data.update(grammar=data["grammar"].replace("move {o}", "lay {o}")), "mix of dialects"),
        (lambda data: data.update(grammar=data["grammar"].replace('"rhs"', '"right"')), "cannot be read"),
        (lambda data: data.update(grammar=data["grammar"].replace("Your task is", "Do")), "the task 'Do"),
        (lambda data: data.update(pddl_problem=data["pddl_problem"].split("(:goal")[0]), r"\(:goal"),
        (
            lambda data: data.update(pddl_problem=data["pddl_problem"].replace("(inreceptacle", "(under")),
            "under",
        ),
        (
            lambda data: data.update(
                pddl_problem=data["pddl_problem"].replace("(atlocation agent1 loc_bar_00)", "")
            ),
            "exactly one atLocation",
        ),
        (
            lambda data: data.update(
                pddl_problem=data["pddl_problem"].split("(:goal")[0] + "(:goal (opened x)))"
            ),
            "one of the six goals",
        ),
        (
            lambda data: data.update(
                pddl_problem=data["pddl_problem"].replace("(:init", "(:init (inreceptacle a_bar_1 b_bar_1)")
            ),
            "b_bar_1",
        ),
    ],
)
def test_unplayable_games_say_why(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(GameFileError, match=message):
        load_game(_broken(tmp_path, change))


def test_json_of_another_shape_is_refused() -> None:
    with pytest.raises(GameFileError, match="a JSON list"):
        parse_game("[]", "somewhere")
