"""Parsed game files on disk, so that a game is parsed once and not once per run."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.household.game import Game, GameFacts, Goal
from envs.household.pddl import read_game
from envs.household.wording import WORDINGS

CACHE_VARIABLE = "MEMGRPO_CACHE"
_FORMAT = 1
"""Raised when what is stored changes, so that older files are parsed again."""


def cache_folder() -> Path:
    """Where parsed games are kept: ``$MEMGRPO_CACHE`` or ``~/.cache/memgrpo``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "memgrpo"


def load_game(path: Path) -> Game:
    """The game of a file, from the cache when the file has not changed since.

    Raises GameFileError when the file cannot be played.
    """
    entry = _entry(path)
    if entry is None:
        return Game(read_game(path))
    if entry.exists():
        stored = _read(entry, path)
        if stored is not None:
            return Game(stored)
    facts = read_game(path)
    _write(entry, facts)
    return Game(facts)


def _entry(path: Path) -> Path | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    key = f"{_FORMAT} {path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    return cache_folder() / "household" / digest[:2] / f"{digest[2:34]}.json"


def _read(entry: Path, path: Path) -> GameFacts | None:
    """What is stored, or None for a damaged entry, which is then written again."""
    try:
        data: dict[str, Any] = json.loads(entry.read_text(encoding="utf-8"))
        facts = {name: [tuple(row) for row in rows] for name, rows in data["facts"].items()}
        goal = Goal(**{**data["goal"], "properties": tuple(data["goal"]["properties"])})
        return GameFacts(data["task"], WORDINGS[data["wording"]], goal, facts, str(path))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(entry: Path, facts: GameFacts) -> None:
    data = {
        "task": facts.task,
        "wording": facts.wording.name,
        "goal": asdict(facts.goal),
        "facts": facts.facts,
    }
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=entry.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(data, file, separators=(",", ":"))
    os.replace(temporary, entry)
