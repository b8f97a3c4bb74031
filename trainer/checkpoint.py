"""Checkpoints that are complete or absent, found by themselves, and exact.

A checkpoint is a folder ``<root>/<phase>-<step>/``: ``model/`` (loads in plain transformers, tokenizer
included), one ``<name>.pt`` per stateful object (optimizer, scheduler ...), ``rng.pt`` with the random
state of every rank, ``memory.json`` with the bank, ``state.json`` and ``manifest.json`` with the SHA-256
of every other file. It is written as ``.tmp-<name>``, flushed to disk and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from memory.errors import UserError
from trainer.files import fsync_folder
from trainer.rng import RngState

FORMAT = 1
_MANIFEST = "manifest.json"


class CheckpointError(UserError):
    """A checkpoint cannot be written or read; the message names the file and what to do."""


class Stateful(Protocol):
    """Anything whose state torch can save: an optimiser, a scheduler, the alarms."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object: ...


@dataclass(frozen=True, slots=True)
class TrainState:
    """Where training stands: ``step`` updates of ``phase`` (``sft``, ``grpo`` ...) are done.

    ``cursor`` says which task comes next; ``extras`` holds further JSON values of the loop.
    """

    phase: str
    step: int
    cursor: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint read from disk and verified, apart from the tensors.

    ``logs`` are the sizes for `RunFolder.rewind`; ``memory`` is the bank's state or None; ``rng`` has
    one state per rank of the run that wrote it.
    """

    path: Path
    state: TrainState
    logs: Mapping[str, int]
    memory: Mapping[str, Any] | None
    rng: tuple[RngState, ...]

    @property
    def model_path(self) -> Path:
        return self.path / "model"

    def restore_model(self, model: torch.nn.Module) -> None:
        """Put the saved weights into ``model``, in place and bit for bit.

        A PEFT model takes its adapter. Weights of another shape or name: `CheckpointError`.
        """
        try:
            _load_weights(model, self.model_path)
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"{self.model_path} does not fit the model of this config: {error}\n"
                f"Use the policy settings of the run that wrote it, or start under a new run.name."
            ) from error

    def restore(self, stateful: Mapping[str, Stateful]) -> None:
        """Load the state of each named object. A name the checkpoint lacks: `CheckpointError`."""
        for name, target in stateful.items():
            file = self.path / f"{name}.pt"
            if not file.exists():
                have = sorted(p.stem for p in self.path.glob("*.pt") if p.stem != "rng")
                raise CheckpointError(
                    f"{self.path} holds no state of {name!r}, only of {', '.join(have) or 'nothing'}.\n"
                    f"It was written by another kind of run; choose a checkpoint of this one."
                )
            target.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))


def save_checkpoint(
    root: Path,
    state: TrainState,
    *,
    model: Any,
    tokenizer: Any,
    stateful: Mapping[str, Stateful],
    rng: Sequence[RngState],
    logs: Mapping[str, int],
    memory: Mapping[str, Any] | None = None,
    keep: int = 2,
) -> Path:
    """Write ``<root>/<phase>-<step>`` and drop all but the last ``keep`` checkpoints.

    ``model`` and ``tokenizer`` are transformers objects (or PEFT), ``rng`` one `rng_state` per rank,
    ``logs`` comes from `RunFolder.log_sizes`. When anything fails, a full disk say, nothing of the
    new checkpoint stays, the earlier ones are untouched, and `CheckpointError` is raised.
    """
    if keep < 1:
        raise CheckpointError(f"keep is {keep}; at least 1 checkpoint must be kept to resume from.")
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    name = f"{state.phase}-{state.step:06d}"
    temporary = root / f".tmp-{name}"
    try:
        temporary.mkdir()
        _save_model(model, tokenizer, temporary / "model")
        for key, source in stateful.items():
            torch.save(source.state_dict(), temporary / f"{key}.pt")
        torch.save([asdict(one) for one in rng], temporary / "rng.pt")
        if memory is not None:
            _write_json(temporary / "memory.json", memory)
        _write_json(temporary / "state.json", {**asdict(state), "logs": dict(logs)})
        _write_manifest(temporary, order=1 + max((_order(p) for p in _complete(root)), default=0))
        _put_in_place(temporary, root / name)
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"checkpoint {root / name} could not be written: {error}\n"
            f"{shutil.disk_usage(root).free / 2**20:.0f} MiB are free there. Earlier checkpoints are intact:"
            f" make room, then give the same command again to continue from the last one."
        ) from error
    for old in _complete(root)[:-keep]:
        _remove(old)
    return root / name


def latest_checkpoint(root: Path) -> Path | None:
    """The last complete checkpoint in ``root``, verified against its manifest; None when there is none.

    Folders without a manifest are unfinished and ignored. A file that differs from the manifest:
    `CheckpointError`, since going on from an older one is for a person to decide.
    """
    complete = _complete(root)
    if not complete:
        return None
    try:
        verify(complete[-1])
    except CheckpointError as error:
        older = f" to continue from {complete[-2].name}" if len(complete) > 1 else " to start from nothing"
        raise CheckpointError(f"{error}\nRestore the file, or delete {complete[-1]}{older}.") from error
    return complete[-1]


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify the checkpoint at ``path``; then use `Checkpoint.restore` and ``restore_model``."""
    verify(path)
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    logs = state.pop("logs")
    memory_file = path / "memory.json"
    memory = json.loads(memory_file.read_text(encoding="utf-8")) if memory_file.exists() else None
    saved = torch.load(path / "rng.pt", map_location="cpu", weights_only=True)
    return Checkpoint(
        path=path,
        state=TrainState(**state),
        logs=logs,
        memory=memory,
        rng=tuple(RngState(**one) for one in saved),
    )


def verify(path: Path) -> None:
    """Compare every file of a checkpoint with its manifest; `CheckpointError` names the first bad one."""
    manifest = _manifest(path)
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {manifest['format']}, expected {FORMAT}."
            f" Use the version of memgrpo that wrote it."
        )
    for name, expected in manifest["files"].items():
        file = path / name
        found = _sha256(file) if file.exists() else "no file"
        if found != expected:
            raise CheckpointError(
                f"{file} is damaged.\n  expected sha256 {expected}\n  found    {found}"
            )


def _save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    with _no_progress_bar():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """The bars of transformers would break the terminal's table."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _load_weights(model: torch.nn.Module, folder: Path) -> None:
    if (folder / "adapter_config.json").exists():
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"))
        return
    from transformers import AutoModelForCausalLM

    # from_pretrained undoes what save_pretrained may do to names and layout; plain key loading would not.
    with _no_progress_bar():
        saved = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    model.load_state_dict(saved.state_dict())


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def _write_manifest(folder: Path, order: int) -> None:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    sums = {str(p.relative_to(folder)): _sha256(p) for p in files}
    _write_json(folder / _MANIFEST, {"format": FORMAT, "order": order, "files": sums})


def _put_in_place(temporary: Path, final: Path) -> None:
    for path in [*temporary.rglob("*"), temporary]:
        if path.is_dir():
            fsync_folder(path)
        else:
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())
    if final.exists():
        _remove(final)
    os.rename(temporary, final)
    fsync_folder(final.parent)


def _remove(folder: Path) -> None:
    # Renamed first: a kill halfway must not leave a folder that looks complete.
    doomed = folder.with_name(f".tmp-removed-{folder.name}")
    os.rename(folder, doomed)
    shutil.rmtree(doomed)


def _sweep(root: Path) -> None:
    for leftover in root.glob(".tmp-*"):
        shutil.rmtree(leftover)


def _complete(root: Path) -> list[Path]:
    """Folders with a manifest, oldest first."""
    if not root.is_dir():
        return []
    found = [p for p in root.iterdir() if not p.name.startswith(".") and (p / _MANIFEST).is_file()]
    return sorted(found, key=_order)


def _order(path: Path) -> int:
    return int(_manifest(path)["order"])


def _manifest(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(manifest["files"], dict) or "order" not in manifest or "format" not in manifest:
            raise KeyError("files")
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is no complete checkpoint: it has no {_MANIFEST}. Choose another one."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} is damaged: not the JSON of a manifest ({error}). Delete {path} to use an earlier one."
        ) from error
    return manifest


def _sha256(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
