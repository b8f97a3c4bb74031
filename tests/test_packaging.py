"""What an installed distribution must hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from trainer.parts import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirement_name(requirement: str) -> str:
    return re.split(r"[\[<>=~! ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_every_extra_that_an_error_names_exists():
    assert set(EXTRAS.values()) <= set(PROJECT["project"]["optional-dependencies"])


def test_everything_that_make_installs_is_pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {requirement_name(line) for line in lines if re.match(r"[A-Za-z0-9_.-]+==", line)}
    extras = PROJECT["project"]["optional-dependencies"]
    asked = list(PROJECT["project"]["dependencies"])
    asked += [item for name in ("dev", "alfworld", "gguf", "tensorboard") for item in extras[name]]
    assert {requirement_name(item) for item in asked} - {"memgrpo"} <= pinned


def test_all_data_files_have_a_suffix_that_is_packaged():
    suffixes = {pattern.removeprefix("*") for pattern in PROJECT["tool"]["setuptools"]["package-data"]["*"]}
    folders = ("memory", "envs", "agents", "rewards", "trainer", "launch", "configs")
    data = {
        path.relative_to(ROOT)
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert data
    assert not sorted(str(path) for path in data if path.suffix not in suffixes)
