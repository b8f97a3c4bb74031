"""A component of the run as the config names it: a dotted path and options, checked but not yet built."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memory.errors import UserError
from trainer.signatures import import_target, read_signature

EXTRAS: Mapping[str, str] = {
    "alfworld": "alfworld",
    "textworld": "alfworld",
    "scienceworld": "scienceworld",
    "deepspeed": "deepspeed",
    "vllm": "vllm",
    "verl": "verl",
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "gguf": "gguf",
    "sklearn": "attribution",
}
"""Extra of the distribution that brings each optional package."""


class BuildError(UserError):
    """A component cannot be made from its options."""


@dataclass(frozen=True, slots=True)
class Part:
    """A class or function (``target``) with the options to call it with.

    ``path`` is the config key, for messages. ``partial``: building binds the options and leaves the
    call to the trainer, as for estimators and losses.
    """

    path: str
    target: str
    options: Mapping[str, Any]
    partial: bool = False

    def accepted(self, **offered: Any) -> dict[str, Any]:
        """Those of ``offered`` that the target has a parameter for."""
        options = read_signature(self.target).options
        return {name: value for name, value in offered.items() if name in options}

    def build(self, **given: Any) -> Any:
        """Call the target with its options and ``given``, nested parts first.

        A missing optional package or a value the component refuses: `BuildError`.
        """
        options = {name: _built(value) for name, value in self.options.items() if name not in given}
        try:
            target = import_target(self.target)
            if self.partial:
                return functools.partial(target, **options, **given)
            return target(**options, **given)
        except UserError:
            raise
        except ModuleNotFoundError as error:
            raise BuildError(_missing_package(self, error)) from error
        except ValueError as error:
            raise BuildError(f"{self.path} ({self.target}) refuses its options.\n  {error}") from error


def _built(value: Any) -> Any:
    if isinstance(value, Part):
        return value.build()
    if isinstance(value, Mapping):
        return {key: _built(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_built(item) for item in value)
    return value


def _missing_package(part: Part, error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    if package in EXTRAS:
        mend = f"Install it: pip install 'memgrpo[{EXTRAS[package]}]'"
    else:
        mend = f"Install {package}, or choose another {part.path.partition('.')[0]}."
    return f"{part.path} ({part.target}) needs the package {package!r}, which is not installed.\n  {mend}"
