"""Runs one command again and again, killed with SIGKILL at another moment each time, then to its end.

``python -m tests.trainer.kill_moments train key=value ...`` forks one process a launch, so that the
imports are paid once. Prints one line a launch.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import trainer.checkpoint
import trainer.logging
import trainer.rollout_log
import trainer.run
from launch.cli import main


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_rename_of(name: str) -> Any:
    """The checkpoint is written but not yet renamed."""
    rename = os.rename

    def patched(source: Path, target: Path) -> None:
        if Path(target).name == name:
            die()
        rename(source, target)

    return mock.patch.object(os, "rename", patched)


def within_manifest_of(name: str) -> Any:
    """Some files of the checkpoint are written."""
    write = trainer.checkpoint._write_manifest

    def patched(folder: Path, order: int) -> None:
        if folder.name == f".tmp-{name}":
            die()
        write(folder, order)

    return mock.patch.object(trainer.checkpoint, "_write_manifest", patched)


def within_metrics_row(phase: str, step: int) -> Any:
    """Half a line of metrics.jsonl is written."""
    log = trainer.logging.JsonlLogger.log

    def patched(self: Any, row: trainer.logging.MetricRow) -> None:
        log(self, row)
        if (row.phase, row.step) == (phase, step) and row.kind == trainer.logging.STEP:
            os.truncate(self._path, self._path.stat().st_size - 40)
            die()

    return mock.patch.object(trainer.logging.JsonlLogger, "log", patched)


def within_rollouts_of(phase: str, step: int) -> Any:
    """The frame of a step is written in part."""
    write = trainer.rollout_log.RolloutLog.write

    def patched(self: Any, of_phase: str, of_step: int, *rest: Any) -> None:
        write(self, of_phase, of_step, *rest)
        if (of_phase, of_step) == (phase, step):
            os.truncate(self._path, self._path.stat().st_size - 40)
            die()

    return mock.patch.object(trainer.rollout_log.RolloutLog, "write", patched)


def before_report() -> Any:
    """All is trained and saved."""
    return mock.patch.object(trainer.run, "build_report", lambda folder: die())


MOMENTS: dict[str, Callable[[], Any]] = {
    "first checkpoint half written": lambda: within_manifest_of("sft-000002"),
    "warm start, metrics half written": lambda: within_metrics_row("sft", 3),
    "GRPO, before any step": lambda: before_rename_of("grpo-000000"),
    "GRPO, rollouts half written": lambda: within_rollouts_of("grpo", 2),
    "GRPO, checkpoint not renamed": lambda: before_rename_of("grpo-000002"),
    "GRPO, metrics half written": lambda: within_metrics_row("grpo", 3),
    "before the report": before_report,
}


def launch(arguments: list[str], moment: Callable[[], Any] | None) -> str:
    """How the launch ended: ``exit <code>`` or ``signal <number>``."""
    process = os.fork()
    if process == 0:
        with ExitStack() as stack:
            if moment is not None:
                stack.enter_context(moment())
            os._exit(main(arguments))
    _, status = os.waitpid(process, 0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


if __name__ == "__main__":
    assert isinstance(sys.stdout, io.TextIOWrapper)
    for name, moment in [*MOMENTS.items(), ("to the end", None)]:
        print(f"{name}: {launch(sys.argv[1:], moment)}", flush=True)
