"""report.html: one file that shows a run, without network or server."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from trainer.files import write_atomic
from trainer.report_data import collect

_SCRIPTS = ("dom.js", "charts.js", "overview.js", "rollouts.js", "memory.js", "main.js")


def build_report(run: str | Path) -> Path:
    """Write ``report.html`` of the run folder from its files alone and return its path.

    A folder that is no run: `memory.errors.UserError`.
    """
    folder = Path(run)
    target = folder / "report.html"
    write_atomic(target, render(collect(folder)))
    return target


def render(data: dict[str, Any]) -> str:
    """The page with styles, scripts and ``data`` inside."""
    parts = {
        "title": html.escape(str(data["name"])),
        "style": _asset("report.css"),
        "data": _embed(data),
        "script": "\n".join(_asset(name) for name in _SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("report.html"))


def _asset(name: str) -> str:
    return (files("trainer") / "report_assets" / name).read_text(encoding="utf-8")


def _embed(data: dict[str, Any]) -> str:
    # Model output may hold "</script>" or "<!--": no "<" may appear inside the script element.
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
