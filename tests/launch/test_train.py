"""`memgrpo train` as it is meant to go: dry runs, sweeps, several processes, and what comes after."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from launch.cli import main
from tests.launch.small import SMALL
from trainer.config_compose import load_config


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    assert main(["train", *SMALL, "run.dry=true"]) == 0
    plan = capsys.readouterr().out
    for part in ("2 tasks x 2 episodes = 4", "rows", "tokens", "of them trained", "optimiser", "6 train"):
        assert part in plan
    assert not list(run_dir.iterdir())


def test_a_sweep_gives_each_combination_its_own_run(
    capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    assert main(["train", "-m", *SMALL, "train.steps=0", "run.seed=3,4"]) == 0
    assert "job 1 (2 in all)" in capsys.readouterr().out
    configs = [load_config(run_dir / "runs" / "small" / number / "config.yaml") for number in "01"]
    assert [config.run.seed for config in configs] == [3, 4]
    assert [config.run.name for config in configs] == ["small/0", "small/1"]


def test_a_dry_sweep_writes_nothing(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    assert main(["train", "-m", *SMALL, "run.dry=true", "loss=grpo,dapo"]) == 0
    assert capsys.readouterr().out.count("Nothing was written") == 2
    assert not list(run_dir.iterdir())


@pytest.mark.slow
def test_two_processes_train_one_run_that_can_be_evaluated(
    capfd: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    assert main(["train", *SMALL, "engine.processes=2"]) == 0
    folder = run_dir / "runs" / "small"
    assert yaml.safe_load((folder / "config.yaml").read_text())["engine"]["processes"] == 2
    assert (folder / "report.html").is_file()
    capfd.readouterr()
    assert main(["eval", "run=runs/small", "evaluation.tasks=3"]) == 0
    assert "all tasks" in capfd.readouterr().out
