"""Commands on the folder of a run that exists: `memgrpo eval` and `memgrpo report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memory.errors import UserError
from trainer.config_compose import load_config

if TYPE_CHECKING:
    from trainer.evaluate import Evaluation


def evaluate_run(folder: str, overrides: Sequence[str], config_dir: str | None) -> int:
    """Evaluate the newest checkpoint of a run on ``evaluation.split`` and print the tables.

    ``overrides`` replace values of the saved config, or whole groups (``env=...``). Writes nothing.
    """
    config = load_config(Path(folder) / "config.yaml", [*overrides, "engine.processes=1"], config_dir)
    from trainer.evaluate_saved import evaluate_saved

    for result in evaluate_saved(Path(folder), config):
        _print_table(result)
    return 0


def _print_table(result: Evaluation) -> None:
    from rich.console import Console
    from rich.table import Table

    low, high = result.interval
    mode = "greedy" if result.temperature == 0 else f"temperature {result.temperature:g}"
    table = Table("task kind", "won", "played", "success", title=f"{result.split}, {mode}")
    for kind, (won, played) in sorted(result.by_kind.items()):
        table.add_row(kind, str(won), str(played), f"{won / played:.1%}")
    table.add_section()
    table.add_row("mean over kinds", "", "", f"{result.success_by_kind_mean:.1%}")
    interval = f"{result.success_rate:.1%} (95 % interval {low:.1%} to {high:.1%})"
    table.add_row("all tasks", str(result.won), str(result.played), interval)
    Console().print(table)
    if result.failed:
        print(f"{result.failed} episodes failed and are in no count.")


def report_run(folder: str) -> int:
    """Write report.html again from the logs of the run."""
    if not (Path(folder) / "config.yaml").is_file():
        raise UserError(f"{folder} is no run folder: it holds no config.yaml. Expected runs/<name>.")
    from trainer.report import build_report

    print(build_report(Path(folder)))
    return 0
