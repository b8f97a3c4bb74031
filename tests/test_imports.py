"""The layout: imports point only to the left, and no other code folder appears."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = ("memory", "envs", "agents", "rewards", "trainer", "launch")
OTHER_FOLDERS = {"configs", "tests", "benchmarks", "docs"}
NOT_OURS = {"build", "dist", "runs", "multirun", "outputs"}


def python_files() -> list[Path]:
    return sorted(path for folder in ORDER for path in (ROOT / folder).rglob("*.py"))


def imported_folders(source: str) -> set[str]:
    """Top-level names that a module imports anywhere in it, in functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def wrong_direction(folder: str, source: str) -> set[str]:
    to_the_right = set(ORDER[ORDER.index(folder) + 1 :])
    return imported_folders(source) & (to_the_right | OTHER_FOLDERS - {"configs"})


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_to_the_left(path):
    folder = path.relative_to(ROOT).parts[0]
    wrong = wrong_direction(folder, path.read_text(encoding="utf-8"))
    assert not wrong, f"{folder}/ may import only {ORDER[: ORDER.index(folder)]}, but imports {sorted(wrong)}"


def test_a_wrong_import_is_seen_wherever_it_hides():
    hidden = "def f():\n    if True:\n        from trainer.loss import grpo\n"
    assert wrong_direction("agents", hidden) == {"trainer"}
    assert wrong_direction("launch", hidden) == set()
    assert wrong_direction("memory", "import os, envs.types as e") == {"envs"}


def test_there_is_no_other_top_level_code_folder():
    with_code = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir()
        and not path.name.startswith(".")
        and path.name not in NOT_OURS
        and any(path.rglob("*.py"))
    }
    assert with_code <= {*ORDER, *OTHER_FOLDERS}
    assert not [path.name for path in ROOT.glob("*.py")]
