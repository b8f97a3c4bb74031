"""What every benchmark leaves behind: its figures on the last lines, and a result file with the machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

Figures = Mapping[str, tuple[float, str, str]]
"""``{name: (value, unit, target)}``, a target as ``>= 3``."""


def print_figures(figures: Figures) -> None:
    """One line a figure: ``FIGURE <name> <value> <unit> target <op> <value>``."""
    for name, (value, unit, target) in figures.items():
        print(f"FIGURE {name} {value:.4g} {unit} target {target}", flush=True)


def write_result(
    name: str, command: str, packages: Sequence[str], figures: Figures, runs: Sequence[Any], **further: Any
) -> Path:
    """Write ``results/<name>.json``, whole or not at all."""
    record = {
        "command": command,
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in packages},
        },
        **further,
        "figures": {
            figure: {"value": value, "unit": unit, "target": target}
            for figure, (value, unit, target) in figures.items()
        },
        "runs": list(runs),
    }
    RESULTS.mkdir(exist_ok=True)
    unfinished = RESULTS / f"{name}.part"
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    return unfinished.replace(RESULTS / f"{name}.json")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0].partition(":")[2].strip() if names else platform.processor()
