from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.trainer.synthetic_run import CONFIG
from trainer.logging import (
    ALARM,
    EVAL,
    STEP,
    JsonlLogger,
    LoggerError,
    Loggers,
    MetricRow,
    TensorBoardLogger,
    WandbLogger,
    read_metrics,
)
from trainer.progress import Progress

ROW = MetricRow(
    STEP, "grpo", 3,
    {"reward": 0.25, "success": 0.5, "entropy": 1.2, "completion_tokens": 100.0, "trajectories": 8},
    {"seconds": 2.0, "rollout_seconds": 1.0},
)
EVALUATION = MetricRow(EVAL, "grpo", 3, {
    "split": "unseen", "name": "greedy", "success_rate": 0.5, "success_low": 0.2, "success_high": 0.8,
    "won": 3, "played": 6,
})
WARNING = MetricRow(ALARM, "grpo", 3, {
    "alarm": "tied groups", "found": "0.9 of groups", "expected": "at most 0.8", "action": "harder tasks",
})


def test_rows_come_back_and_a_half_written_line_does_not(tmp_path: Path) -> None:
    logger = JsonlLogger()
    logger.start(tmp_path, CONFIG, resumed=False)
    for row in (ROW, EVALUATION, WARNING):
        logger.log(row)
    with open(tmp_path / "metrics.jsonl", "a") as stream:
        stream.write('{"kind": "st')
    assert read_metrics(tmp_path / "metrics.jsonl") == [ROW, EVALUATION, WARNING]


def test_numbers_that_json_lacks_are_written_by_name(tmp_path: Path) -> None:
    logger = JsonlLogger()
    logger.start(tmp_path, CONFIG, resumed=False)
    logger.log(MetricRow(STEP, "grpo", 1, {"loss": float("nan"), "deep": {"x": [float("-inf")]}}))
    record = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert record["values"] == {"loss": "nan", "deep": {"x": ["-inf"]}}


class Collector:
    """A logger as a third party would write it."""

    def __init__(self) -> None:
        self.rows: list[MetricRow] = []
        self.closed = False

    def start(self, folder: Path, config: Any, resumed: bool) -> None:
        self.folder = folder

    def log(self, row: MetricRow) -> None:
        self.rows.append(row)

    def close(self) -> None:
        self.closed = True


def test_further_loggers_get_every_row_beside_the_file(tmp_path: Path) -> None:
    collector = Collector()
    loggers = Loggers(tmp_path, CONFIG, [collector])
    loggers.log(ROW)
    loggers.close()
    assert collector.rows == [ROW] == read_metrics(tmp_path / "metrics.jsonl")
    assert collector.closed and collector.folder == tmp_path


def test_tensorboard_holds_steps_and_evaluations_and_hides_what_a_resumed_run_repeats(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for resumed, logged in ((False, {1: 0.1, 2: 0.2, 3: 0.3}), (True, {2: 0.25})):
        logger = TensorBoardLogger()
        logger.start(tmp_path, CONFIG, resumed=resumed)
        for step, reward in logged.items():
            logger.log(MetricRow(STEP, "grpo", step, {"reward": reward}))
        logger.log(EVALUATION)
        logger.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    rewards = events.Scalars("grpo/reward")
    assert [e.step for e in rewards] == [1, 2]
    assert [e.value for e in rewards] == pytest.approx([0.1, 0.25])
    assert events.Scalars("eval/unseen/greedy")[-1].value == 0.5


@pytest.mark.parametrize(
    ("module", "logger", "extra"),
    [("torch.utils.tensorboard", TensorBoardLogger, "tensorboard"), ("wandb", WandbLogger, "wandb")],
)
def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, logger: Any, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LoggerError, match=rf"memgrpo\[{extra}\]"):
        logger()


def lines(console: Console, rows: list[MetricRow], folder: Path) -> str:
    progress = Progress(console)
    progress.start(folder, CONFIG, resumed=False)
    for row in rows:
        progress.log(row)
    progress.close()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_every_step_is_a_plain_line(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), highlight=False, soft_wrap=True)
    text = lines(console, [ROW, EVALUATION, WARNING, WARNING], tmp_path)
    assert "step grpo 3/30  reward 0.250  success 50.0%  entropy 1.200  tokens/s 800  seconds 2.0" in text
    assert "unseen greedy: 50.0% (3 of 6; 95 % interval 20.0% to 80.0%)" in text
    assert text.count("ALARM") == 1 and "harder tasks" in text
    assert "\x1b" not in text


def test_a_long_warm_start_is_a_few_lines(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), highlight=False, soft_wrap=True)
    rows = [MetricRow(STEP, "sft", step, {"loss": 1.0}) for step in range(1, 41)]
    assert lines(console, rows, tmp_path).count("step sft") == 10


def test_in_a_terminal_one_table_stays_in_place(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    text = lines(console, [ROW, EVALUATION, ROW], tmp_path)
    assert "\x1b[" in text and "grpo 3/30" in text
