"""The folder of one run: what lies where, who may write it, and how it is taken up again.

::

    runs/<name>/
      config.yaml          the resolved config (config.<n>.yaml: earlier ones, after run.resume=true)
      metrics.jsonl        one row per step, evaluation and alarm
      rollouts.jsonl.zst   every turn of every trajectory, one zstd frame per step
      checkpoints/         see trainer/checkpoint.py
      memory/              snapshots of the memory bank
      report.html          built from the files above
      README.md            model card
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import yaml  # type: ignore[import-untyped,unused-ignore]

from memory.errors import UserError
from trainer.checkpoint import latest_checkpoint
from trainer.files import fsync_folder, write_atomic

IGNORED_KEYS = ("run.resume", "run.dry", "run.name", "run.dir", "logger", "checkpoint")
"""Config keys (and all below them) that cannot change what a run computes."""

FIXED_KEYS = (
    "run.seed",
    "policy.model",
    "env._target_",
    "agent._target_",
    "memory._target_",
    "train.learning_rate",
    "train.weight_decay",
)
"""Config keys that ``run.resume=true`` cannot change: a checkpoint holds their old values."""

_LOCK_NAME = ".lock"
_SHOWN_DIFFERENCES = 20
_held: set[Path] = set()


class RunFolderError(UserError):
    """The folder cannot be used for this run; the message says why and what to do."""


class RunFolder:
    """One open run folder, locked against other writers until `close`.

    ``resume_from`` is the checkpoint to continue from (None: start from nothing) and ``changed``
    the config keys that differ from the folder's earlier config, as ``{key: (old, new)}``.
    """

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self.resume_from: Path | None = None
        self.changed: dict[str, tuple[Any, Any]] = {}
        self._lock: IO[str] | None = lock

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        ignored: Sequence[str] = IGNORED_KEYS,
        fixed: Sequence[str] = FIXED_KEYS,
    ) -> Self:
        """Create the folder, or take it up again from its last complete checkpoint.

        ``config`` is the resolved config as plain values. A folder of another config is refused
        (`RunFolderError` with the keys that differ) unless ``resume`` is True, and even then when a
        key in ``fixed`` differs. A folder that another live process writes is refused too.
        """
        folder = Path(path).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder, _lock(folder))
        try:
            run._prepare(config, resume, ignored, fixed)
        except BaseException:
            run.close()
            raise
        return run

    @property
    def config_path(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def rollouts_path(self) -> Path:
        return self.path / "rollouts.jsonl.zst"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def memory(self) -> Path:
        return self.path / "memory"

    def log_sizes(self) -> dict[str, int]:
        """Size in bytes of every log of the run, after an fsync: what a checkpoint remembers.

        Pass it to `trainer.checkpoint.save_checkpoint` after the step's rows have been written.
        """
        sizes = {}
        for file in self._logs():
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
            sizes[str(file.relative_to(self.path))] = file.stat().st_size
        return sizes

    def rewind(self, sizes: Mapping[str, int]) -> None:
        """Cut every log back to ``sizes``, so that the run goes on as if never interrupted.

        Logs that are not in ``sizes`` are removed. A log shorter than its size: `RunFolderError`.
        """
        for name, size in sizes.items():
            file = self.path / name
            found = file.stat().st_size if file.exists() else 0
            if found < size:
                raise RunFolderError(
                    f"{file} holds {found} bytes, but the checkpoint was made when it held {size}.\n"
                    f"Restore the file, or start again under a new run.name."
                )
        for file in self._logs():
            name = str(file.relative_to(self.path))
            if name in sizes:
                os.truncate(file, sizes[name])
            else:
                file.unlink()

    def save_memory(self, phase: str, step: int, state: Mapping[str, Any]) -> Path:
        """Write a snapshot of the memory bank (its ``state_dict``) to ``memory/<phase>-<step>.json``."""
        file = self.memory / f"{phase}-{step:06d}.json"
        write_atomic(file, json.dumps(state, ensure_ascii=False, indent=1))
        return file

    def close(self) -> None:
        """Release the lock. Calling it twice is allowed."""
        if self._lock is not None:
            self._lock.close()
            _held.discard(self.path)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _logs(self) -> list[Path]:
        files = [self.metrics_path, self.rollouts_path]
        return [file for file in files if file.exists()] + sorted(self.memory.glob("*.json"))

    def _prepare(
        self, config: Mapping[str, Any], resume: bool, ignored: Sequence[str], fixed: Sequence[str]
    ) -> None:
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        if self.config_path.exists():
            earlier = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
            self.changed = config_differences(earlier, yaml.safe_load(text), ignored)
            _refuse_changes(self.path, self.changed, resume, fixed)
            self.resume_from = latest_checkpoint(self.checkpoints)
        else:
            _refuse_foreign_files(self.path)
        self.checkpoints.mkdir(exist_ok=True)
        self.memory.mkdir(exist_ok=True)
        if self.changed:
            number = len(list(self.path.glob("config.*.yaml"))) + 1
            write_atomic(self.path / f"config.{number}.yaml", self.config_path.read_text(encoding="utf-8"))
        if self.changed or not self.config_path.exists():
            write_atomic(self.config_path, text)
        if self.resume_from is None:
            self.rewind({})
        fsync_folder(self.path)


def config_differences(
    earlier: Mapping[str, Any], later: Mapping[str, Any], ignored: Sequence[str] = IGNORED_KEYS
) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, as ``{key: (earlier, later)}``; a missing key reads ``<unset>``."""
    before, after = _flatten(earlier), _flatten(later)
    return {
        key: (before.get(key, "<unset>"), after.get(key, "<unset>"))
        for key in sorted(before.keys() | after.keys())
        if not _under(key, ignored) and before.get(key, "<unset>") != after.get(key, "<unset>")
    }


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def _under(key: str, prefixes: Sequence[str]) -> bool:
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)


def _refuse_changes(
    folder: Path, changed: Mapping[str, tuple[Any, Any]], resume: bool, fixed: Sequence[str]
) -> None:
    barred = {key: values for key, values in changed.items() if _under(key, fixed)}
    if resume and barred:
        raise RunFolderError(
            f"{folder} cannot be resumed with these values:\n{_table(barred)}\n"
            f"Its checkpoints belong to the old ones. Give the run a new run.name."
        )
    if changed and not resume:
        raise RunFolderError(
            f"{folder} holds a run of another config:\n{_table(changed)}\n"
            f"Pass run.resume=true to go on with the new values, or give the run a new run.name."
        )


def _table(changed: Mapping[str, tuple[Any, Any]]) -> str:
    shown = list(changed.items())[:_SHOWN_DIFFERENCES]
    lines = [f"  {key}: folder has {old!r}, this command has {new!r}" for key, (old, new) in shown]
    if len(changed) > len(shown):
        lines.append(f"  ... and {len(changed) - len(shown)} more")
    return "\n".join(lines)


def _refuse_foreign_files(folder: Path) -> None:
    # A kill while the folder was being made leaves the lock and unrenamed temporary files only.
    foreign = [file.name for file in folder.iterdir() if not file.name.startswith(".")]
    if foreign:
        raise RunFolderError(
            f"{folder} is not empty and holds no config.yaml: it is no run folder"
            f" (found {', '.join(sorted(foreign)[:5])}).\nChoose another run.name or empty the folder."
        )


def _lock(folder: Path) -> IO[str]:
    # A POSIX record lock dies with its process and is not inherited by forked workers, so a killed
    # run never leaves a stale lock. It does not exclude this very process: `_held` does.
    if folder in _held:
        raise _busy(folder, "this process")
    stream = open(folder / _LOCK_NAME, "a+", encoding="utf-8")  # noqa: SIM115 (held until close)
    try:
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        stream.seek(0)
        owner = stream.read().strip()
        stream.close()
        raise _busy(folder, owner or "another process") from error
    stream.truncate(0)
    stream.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    stream.flush()
    _held.add(folder)
    return stream


def _busy(folder: Path, owner: str) -> RunFolderError:
    return RunFolderError(
        f"{folder} is being written by {owner}.\n"
        f"Wait for it to end, stop it, or give this run a new run.name."
    )
