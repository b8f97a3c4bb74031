"""Finding ALFWorld's official games: a folder, or an archive that is unpacked once into the cache."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envs.household.cache import cache_folder
from envs.household.errors import GameDataError

SPLITS = ("train", "valid_seen", "valid_unseen")
GAME_FILE = "game.tw-pddl"
_ARCHIVES = "*.tar.xz"


def find_games(data: Path) -> Path:
    """The folder that holds the split folders: ``data``, one below it, or an archive's unpacked games.

    ``data`` may be the archive itself or the folder it lies in. Raises GameDataError when there are
    no games, or when several folders or archives could be meant.
    """
    if data.is_dir():
        candidates = [folder for folder in (data, *sorted(data.iterdir())) if _holds_split(folder)]
        if candidates:
            return _only(candidates[:1] if candidates[0] == data else candidates, data)
        archives = [archive for archive in sorted(data.glob(_ARCHIVES)) if archive.is_file()]
    else:
        archives = [data] if data.is_file() else []
    if not archives:
        raise GameDataError(
            f"no ALFWorld games at {data}: expected a folder with {', '.join(SPLITS)}, or a {_ARCHIVES} "
            "archive of one; set env.data"
        )
    return unpack_games(_only(archives, data))


def unpack_games(archive: Path) -> Path:
    """Unpack the game files of an archive into the cache, once, and return the folder of the splits."""
    stat = archive.stat()
    digest = hashlib.sha256(f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()
    target = cache_folder() / "alfworld" / digest[:16]
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as unfinished:
            _extract(archive, Path(unfinished) / "games")
            if not target.is_dir():
                shutil.move(Path(unfinished) / "games", target)
    return _only([folder for folder in (target, *sorted(target.iterdir())) if _holds_split(folder)], archive)


def game_files(folder: Path) -> Iterator[Path]:
    """Game files below ``folder`` (task folders with trial folders), sorted; nothing is opened."""
    for task in sorted(folder.iterdir()):
        if task.is_dir():
            yield from sorted(task.rglob(GAME_FILE))


def _extract(archive: Path, target: Path) -> None:
    try:
        with tarfile.open(archive, "r:*") as opened:
            for member in opened:
                parts = Path(member.name).parts
                if member.isfile() and parts[-1] == GAME_FILE and set(SPLITS) & set(parts):
                    opened.extract(member, target, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise GameDataError(f"cannot unpack {archive}: {error}; fetch the archive again") from error
    if not target.is_dir():
        raise GameDataError(f"no {GAME_FILE} in {archive}: expected ALFWorld's games by split")


def _holds_split(folder: Path) -> bool:
    return any((folder / split).is_dir() for split in SPLITS)


def _only(found: list[Path], where: Path) -> Path:
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise GameDataError(f"{len(found)} sets of ALFWorld games at {where} ({names}): set env.data to one")
    return found[0]
