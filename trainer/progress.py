"""A run in the terminal: one table that stays in place, or plain lines when nobody watches."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from trainer.rows import ALARM, EVAL, MetricRow

_ROWS_SHOWN = 8
_SFT_LINES = 10
"""Lines without a terminal for a whole warm start, whose updates are many and short."""


class Progress:
    """Shows every step, evaluation and new alarm."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._rows: deque[dict[str, str]] = deque(maxlen=_ROWS_SHOWN)
        self._alarms: set[str] = set()
        self._totals: dict[str, int] = {}
        self._live: Live | None = None

    def start(self, folder: Path, config: Mapping[str, Any], resumed: bool) -> None:
        self._totals = {"grpo": int(config["train"]["steps"])}
        if config.get("sft"):
            self._totals["sft"] = int(config["sft"]["steps"])
        self._console.print(f"{'continuing' if resumed else 'run'} {folder}")
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def log(self, row: MetricRow) -> None:
        if row.kind == EVAL:
            self._console.print(_evaluation(row))
        elif row.kind == ALARM:
            self._alarm(row)
        elif self._live is not None:
            self._rows.append(self._cells(row))
            self._live.update(_table(self._rows), refresh=True)
        elif row.phase != "sft" or row.step % max(self._totals["sft"] // _SFT_LINES, 1) == 0:
            self._console.print("  ".join(f"{name} {text}" for name, text in self._cells(row).items()))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _cells(self, row: MetricRow) -> dict[str, str]:
        values, total = row.values, self._totals.get(row.phase)
        cells = {"step": f"{row.phase} {row.step}/{total}"}
        for name, key, form in _COLUMNS:
            if key in values:
                cells[name] = format(values[key], form)
        seconds = row.timing.get("rollout_seconds")
        if seconds and "completion_tokens" in values:
            cells["tokens/s"] = f"{values['completion_tokens'] * values['trajectories'] / seconds:.0f}"
        if "seconds" in row.timing:
            cells["seconds"] = f"{row.timing['seconds']:.1f}"
        return cells

    def _alarm(self, row: MetricRow) -> None:
        kind = str(row.values["alarm"])
        if kind in self._alarms:
            return
        self._alarms.add(kind)
        self._console.print(
            f"ALARM {row.phase} {row.step}: {kind}: {row.values['found']}, expected {row.values['expected']}."
            f" {row.values['action']} (shown once; all alarms are in report.html)",
            style="yellow",
        )


_COLUMNS = (
    ("reward", "reward", ".3f"),
    ("success", "success", ".1%"),
    ("loss", "loss", ".4f"),
    ("KL", "kl", ".4f"),
    ("entropy", "entropy", ".3f"),
    ("gradient", "grad_norm", ".2f"),
    ("tied", "tied_groups", ".0%"),
)


def _evaluation(row: MetricRow) -> str:
    v = row.values
    return (
        f"eval {row.phase} {row.step}: {v['split']} {v['name']}: {v['success_rate']:.1%}"
        f" ({v['won']} of {v['played']}; 95 % interval {v['success_low']:.1%} to {v['success_high']:.1%})"
    )


def _table(rows: deque[dict[str, str]]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*names, box=None, header_style="dim")
    for row in rows:
        table.add_row(*(row.get(name, "") for name in names))
    return table
