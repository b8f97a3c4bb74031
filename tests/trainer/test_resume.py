"""A run that is killed at many moments equals one that never was, through the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.kill_moments import MOMENTS
from trainer.checkpoint import latest_checkpoint
from trainer.rollout_log import read_rollouts

REPOSITORY = Path(__file__).parents[2]
TINY = [
    "experiment=household/memharness", "rewards=[outcome,format,progress]", "engine.processes=1",
    "env.n_train=8", "env.n_valid=2", "env.n_households=4", "env.n_receptacles=8", "env.n_objects=9",
    "agent.max_steps=20", "agent.query=first_step", "policy.model.hidden_size=16", "policy.model.layers=1",
    "policy.model.heads=2", "train.steps=3", "train.tasks_per_step=4", "train.group_size=6",
    "sft.episodes=8", "sft.steps=4", "sft.tokens_per_batch=512", "evaluation.tasks=2",
    "evaluation.every=2", "checkpoint.every=2",
]


def run(module: str, name: str, folder: Path) -> str:
    command = [sys.executable, "-m", module, "train", *TINY, f"run.dir={folder}", f"run.name={name}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """Folders of the uninterrupted and of the killed run, and what the latter printed."""
    folder = tmp_path_factory.mktemp("runs")
    run("launch.cli", "straight", folder)
    printed = run("tests.trainer.kill_moments", "killed", folder)
    return folder / "straight", folder / "killed", printed


def assert_same(first: Any, second: Any, where: str) -> None:
    """Equality of nested values whose leaves may be tensors."""
    if isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_same(first[key], second[key], f"{where}: {key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for index, pair in enumerate(zip(first, second, strict=True)):
            assert_same(*pair, f"{where}: {index}")
    else:
        assert first == second, where


def metrics(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "timing"} for row in rows]


def test_every_kill_hit_and_the_last_launch_ended_well(runs: tuple[Path, Path, str]) -> None:
    for moment in MOMENTS:
        assert f"{moment}: signal 9" in runs[2], runs[2]
    assert "to the end: exit 0" in runs[2], runs[2]


def test_weights_optimizer_and_bank_are_equal_bit_for_bit(runs: tuple[Path, Path, str]) -> None:
    straight, killed = (latest_checkpoint(folder / "checkpoints") for folder in runs[:2])
    assert straight is not None and killed is not None
    assert straight.name == killed.name == "grpo-000003"
    for file in ("model/model.safetensors", "memory.json"):
        assert (straight / file).read_bytes() == (killed / file).read_bytes(), file
    for file in ("optimizer.pt", "scheduler.pt", "rng.pt"):
        first, second = (torch.load(folder / file, weights_only=True) for folder in (straight, killed))
        assert_same(first, second, file)
    assert json.loads((straight / "memory.json").read_text())["entries"]


def test_metrics_and_rollouts_are_equal(runs: tuple[Path, Path, str]) -> None:
    straight, killed = runs[:2]
    rows = metrics(straight)
    steps = [row for row in rows if row["kind"] == "step"]
    assert [row["step"] for row in steps] == [1, 2, 3, 4, 1, 2, 3]
    # Without a gradient after a kill the comparison would say nothing.
    assert any(row["values"]["grad_norm"] > 0 for row in steps[5:])
    assert metrics(killed) == rows
    logs = [folder / "rollouts.jsonl.zst" for folder in (straight, killed)]
    assert list(read_rollouts(logs[0])) == list(read_rollouts(logs[1]))


def test_both_left_the_same_files(runs: tuple[Path, Path, str]) -> None:
    def names(folder: Path) -> set[str]:
        return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}

    straight, killed, _ = runs
    assert names(straight) == names(killed)
    assert "report.html" in names(straight)
