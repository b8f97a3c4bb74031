"""Where the numbers of a run go: metrics.jsonl always, further loggers by config, the terminal.

A logger is a class with ``start``, ``log`` and ``close``; the ``logger`` config group names it by its
dotted path.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from memory.errors import UserError
from trainer.progress import Progress
from trainer.rows import ALARM, EVAL, STEP, MetricRow

__all__ = ["ALARM", "EVAL", "STEP", "JsonlLogger", "Loggers", "MetricRow", "read_metrics"]


class LoggerError(UserError):
    """A logger cannot be used; the message names the extra or setting that is missing."""


class RunLogger(Protocol):
    """A sink for metric rows."""

    def start(self, folder: Path, config: Mapping[str, Any], resumed: bool) -> None:
        """Open the sink for the run in ``folder``; ``resumed``: earlier rows are there already."""
        ...

    def log(self, row: MetricRow) -> None: ...

    def close(self) -> None: ...


class JsonlLogger:
    """metrics.jsonl: one JSON object per row, on disk as soon as it is logged."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def start(self, folder: Path, config: Mapping[str, Any], resumed: bool) -> None:
        self._path = folder / "metrics.jsonl"

    def log(self, row: MetricRow) -> None:
        if self._path is None:
            raise LoggerError("JsonlLogger.log was called before start(folder, config, resumed).")
        record = {"kind": row.kind, "phase": row.phase, "step": row.step}
        record |= {"values": _finite(row.values), "timing": _finite(row.timing)}
        with open(self._path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        self._path = None


class TensorBoardLogger:
    """Scalars of steps and evaluations as TensorBoard events in ``<run>/tensorboard``."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise LoggerError(
                "logger=tensorboard needs the package tensorboard, which is not installed.\n"
                "Install it with: pip install 'memgrpo[tensorboard]'"
            ) from error
        self._make = SummaryWriter
        self._writer: Any = None
        self._resumed = False

    def start(self, folder: Path, config: Mapping[str, Any], resumed: bool) -> None:
        self._folder = folder / "tensorboard"
        self._resumed = resumed

    def log(self, row: MetricRow) -> None:
        if self._writer is None:
            # TensorBoard hides what a killed run wrote from this step on.
            purge = row.step if self._resumed else None
            self._writer = self._make(str(self._folder), purge_step=purge)
        for name, value in scalars(row):
            self._writer.add_scalar(name, value, row.step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbLogger:
    """Weights & Biases; offline when no API key is set. A resumed run keeps its id."""

    def __init__(self, project: str = "memgrpo", mode: str | None = None) -> None:
        try:
            import wandb  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise LoggerError(
                "logger=wandb needs the package wandb, which is not installed.\n"
                "Install it with: pip install 'memgrpo[wandb]'"
            ) from error
        self._wandb: Any = wandb
        self._project = project
        self._mode = mode
        self._run: Any = None

    def start(self, folder: Path, config: Mapping[str, Any], resumed: bool) -> None:
        mode = self._mode or ("online" if self._wandb.api.api_key else "offline")
        # The jobs of a sweep are named <run>/<number>; an id may hold no slash.
        name = str(config["run"]["name"]).replace("/", "-")
        self._run = self._wandb.init(
            project=self._project, name=name, id=name, resume="allow",
            mode=mode, dir=str(folder), config=dict(config),
        )

    def log(self, row: MetricRow) -> None:
        values: dict[str, Any] = dict(scalars(row))
        self._run.log(values | {f"{row.phase}/step": row.step})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


class Loggers:
    """metrics.jsonl, the terminal and all further loggers as one."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        further: Sequence[RunLogger] = (),
        resumed: bool = False,
    ) -> None:
        self._all: list[RunLogger] = [JsonlLogger(), Progress(), *further]
        for logger in self._all:
            logger.start(folder, config, resumed)

    def log(self, row: MetricRow) -> None:
        for logger in self._all:
            logger.log(row)

    def close(self) -> None:
        for logger in self._all:
            logger.close()


def scalars(row: MetricRow) -> Iterator[tuple[str, float]]:
    """Numbers of a row under the names charts use: ``<phase>/<name>``; alarms and notes have none."""
    if row.kind == STEP:
        for name, value in [*row.values.items(), *row.timing.items()]:
            if isinstance(value, int | float):
                yield f"{row.phase}/{name}", float(value)
    elif row.kind == EVAL:
        yield f"eval/{row.values['split']}/{row.values['name']}", row.values["success_rate"]


def read_metrics(path: Path) -> list[MetricRow]:
    """All complete rows of a metrics.jsonl; a last line without its end is one being written."""
    with open(path, encoding="utf-8") as stream:
        return [MetricRow(**json.loads(line)) for line in stream if line.endswith("\n")]


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: write them as the strings ``nan``, ``inf``, ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
