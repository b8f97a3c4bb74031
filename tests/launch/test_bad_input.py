"""Bad input beyond the config: files, folders and sizes. One screen, code 2, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launch.cli import main
from tests.launch.small import SMALL
from trainer.config_compose import compose_config


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one-screen message of a command that must end with code 2."""
    capsys.readouterr()
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 24
    assert not list(Path.cwd().rglob(".tmp-*"))
    return message


def test_a_prompt_longer_than_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "train", *SMALL, "run.dry=true", "policy.context_length=8")
    assert "policy's context holds 8" in message
    assert "raise policy.context_length" in message
    assert not list(Path.cwd().iterdir())


def test_an_empty_task_list(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    (run_dir / "games" / "train").mkdir(parents=True)
    message = refused(capsys, "train", "env=household_games", "env.data=games", "engine.processes=1")
    assert "games/train" in message
    assert "game.tw-pddl" in message
    assert not (run_dir / "runs").exists()


def test_a_split_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "train", *SMALL, "train.split=trian")
    assert "train.split=trian" in message
    assert "valid_unseen" in message


def test_a_truncated_game_file(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    for split in ("train", "valid_unseen"):
        file = run_dir / "games" / split / "pick_and_place_simple-Mug-None-Shelf-1" / "trial" / "game.tw-pddl"
        file.parent.mkdir(parents=True)
        file.write_text('{"pddl_domain": "(define (domain alfred) (:requ')
    message = refused(capsys, "train", "env=household_games", "env.data=games", "engine.processes=1")
    assert "game.tw-pddl" in message
    assert "expected" in message
    assert not (run_dir / "runs").exists()


def test_a_model_folder_without_tokenizer(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    (run_dir / "model").mkdir()
    (run_dir / "model" / "config.json").write_text('{"model_type": "qwen2"}')
    (run_dir / "model" / "model.safetensors").write_bytes(b"")
    model = f"policy.model.model={run_dir / 'model'}"
    message = refused(capsys, "train", "engine.processes=1", "policy=hf", model)
    assert "has no tokenizer" in message
    assert "tokenizer.json" in message
    assert not (run_dir / "runs").exists()


def test_a_part_that_is_no_reward(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "train", *SMALL, "rewards.mine._target_=tests.launch.parts.NoReward")
    assert "expected a subclass of rewards.base.Reward" in message


def test_the_folder_of_another_config(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    folder = run_dir / "runs" / "small"
    folder.mkdir(parents=True)
    earlier = yaml.safe_dump(dict(compose_config([*SMALL, "run.seed=7"]).resolved))
    (folder / "config.yaml").write_text(earlier)
    message = refused(capsys, "train", *SMALL)
    assert "run.seed: folder has 7, this command has 0" in message
    assert "run.resume=true" in message
    assert (folder / "config.yaml").read_text() == earlier
    assert not list(folder.glob("checkpoints/*"))


def test_a_checkpoint_with_a_bad_checksum(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    assert main(["train", *SMALL]) == 0
    weights = sorted((run_dir / "runs" / "small" / "checkpoints").glob("*/model/model.safetensors"))[-1]
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    message = refused(capsys, "eval", "run=runs/small")
    assert str(weights.parent.parent.name) in message
    assert "model.safetensors" in message
