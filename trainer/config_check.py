"""From plain values to a checked `Config`: every key must exist and every value have its type.

One source of truth for each key: fixed sections are the dataclasses of `trainer.config`; below a plug
point the keys are the parameters of the ``_target_``.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from memory.errors import UserError
from trainer.config import OPTIONAL_SECTIONS, SECTIONS, Config
from trainer.config_types import convert_value, dataclass_of, did_you_mean, shown, type_name, unknown_key
from trainer.parts import Part
from trainer.signatures import Signature, TargetError, annotation_type, read_signature

PARTS = (
    "env", "agent", "retriever", "memory", "distiller", "teacher", "advantage", "engine", "loss", "policy"
)  # fmt: skip
"""Plug points that hold one part, in the order they are checked: what may import torch comes last."""

MULTI_PARTS = ("rewards", "logger")
"""Plug points that hold several named parts at once."""

OPTIONAL_PARTS = frozenset({"retriever", "distiller", "teacher"})

GIVEN: Mapping[str, frozenset[str]] = {
    "memory": frozenset({"embedder"}),
    "advantage": frozenset({"group", "report"}),
    "advantage.base": frozenset({"group", "report"}),
    "policy": frozenset({"tokenizer"}),
    "policy.model": frozenset({"world", "seed"}),
}
"""Parameters that `trainer.build` passes itself, by the path of the part."""

_SHOWN_PROBLEMS = 8
_NODE_KEYS = ("_target_", "_partial_")
T = TypeVar("T")


class ConfigError(UserError):
    """The config is wrong; every problem on its own lines."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        listed = [f"  {problem}" for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > _SHOWN_PROBLEMS:
            listed.append(f"  ... and {len(self.problems) - _SHOWN_PROBLEMS} more")
        super().__init__("\n".join(["the configuration is wrong:", *listed]))


def check_config(values: Mapping[str, Any]) -> Config:
    """The checked config of plain resolved ``values``.

    All problems of the fixed sections are reported together, else those of the first faulty part:
    `ConfigError`. Components are imported only where an annotation needs it.
    """
    problems: list[str] = []
    known = (*SECTIONS, *PARTS, *MULTI_PARTS)
    problems += [unknown_key(key, known, value) for key, value in values.items() if key not in known]
    made: dict[str, Any] = {}
    for name, section in SECTIONS.items():
        absent = values.get(name) is None and name in OPTIONAL_SECTIONS
        made[name] = None if absent else structure(name, section, values.get(name), problems)
    _raise(problems)
    _raise(_cross_checks(made))
    for name in MULTI_PARTS:
        made[name] = _several(name, values.get(name))
    for name in PARTS:
        made[name] = check_point(name, values.get(name))
    if made["sft"] is not None and made["teacher"] is None:
        raise ConfigError(["sft: found no teacher, expected one to imitate. Choose a teacher, or sft=null."])
    config = Config(**made, resolved=values)
    if config.processes < 1:
        raise ConfigError([f"engine.processes={config.processes}: expected at least 1."])
    return config


def structure(path: str, cls: type[T], values: Any, problems: list[str]) -> T | None:
    """An instance of dataclass ``cls`` from a mapping; None with entries in ``problems`` otherwise."""
    if not isinstance(values, Mapping):
        problems.append(f"{path}: found {shown(values)}, expected a section with options.")
        return None
    before = len(problems)
    declared = fields(cls)  # type: ignore[arg-type]
    names = [f.name for f in declared]
    hints = typing.get_type_hints(cls)
    for key, value in values.items():
        if key not in names:
            problems.append(unknown_key(f"{path}.{key}", names, value))
    made = {}
    for f in declared:
        if f.name in values:
            made[f.name] = convert(f"{path}.{f.name}", values[f.name], hints[f.name], problems)
        elif f.default is MISSING and f.default_factory is MISSING:
            problems.append(f"{path}.{f.name}: missing, expected {type_name(hints[f.name])}.")
    return cls(**made) if len(problems) == before else None


def convert(path: str, value: Any, annotation: Any, problems: list[str]) -> Any:
    """``value`` as a nested `Part`, dataclass or plain value of the type ``annotation``."""
    if _is_part(value):
        return check_part(path, value, problems)
    items = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(items, list) and any(map(_is_part, items)):
        return _convert_items(path, value, problems)
    section = dataclass_of(annotation)
    if section is not None and value is not None:
        return structure(path, section, value, problems)
    return convert_value(path, value, annotation, problems)


def _convert_items(path: str, value: Any, problems: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: convert(f"{path}.{key}", item, Any, problems) for key, item in value.items()}
    return tuple(convert(f"{path}[{i}]", item, Any, problems) for i, item in enumerate(value))


def check_part(path: str, node: Mapping[str, Any], problems: list[str]) -> Part | None:
    """A `Part` whose options fit the parameters of its target, except those in `GIVEN`."""
    target = node["_target_"]
    wanted = "expected the dotted path of a class or function"
    if not isinstance(target, str) or target == "???":
        problems.append(f"{path}._target_: found {shown(target)}, {wanted}.")
        return None
    try:
        signature = read_signature(target)
    except TargetError as error:
        problems.append(f"{path}._target_={target}: {error}; {wanted}.")
        return None
    partial = convert_value(f"{path}._partial_", node.get("_partial_", False), bool, problems)
    values = {key: value for key, value in node.items() if key not in _NODE_KEYS}
    options = _options(path, values, signature, problems)
    given = GIVEN.get(path, frozenset())
    for name, option in signature.options.items():
        if option.default is None and name not in values and name not in given and not partial:
            problems.append(f"{path}.{name}: missing, expected {option.annotation or 'a value'} ({target}).")
    return Part(path, target, options, bool(partial))


def _options(
    path: str, values: Mapping[str, Any], signature: Signature, problems: list[str]
) -> dict[str, Any]:
    """The converted options of a part; unknown and forbidden ones become ``problems``."""
    given = GIVEN.get(path, frozenset())
    known = [name for name in signature.options if name not in given]
    options = {}
    for key, value in values.items():
        if key in given:
            problems.append(f"{path}.{key}={value}: memgrpo sets this itself. Remove it.")
        elif key in signature.options or signature.open_ended:
            # A part is not compared with the annotation, whose name may cost a heavy import.
            plain = key in signature.options and not _is_part(value)
            annotation = annotation_type(signature.options[key]) if plain else Any
            options[key] = convert(f"{path}.{key}", value, annotation, problems)
        else:
            problems.append(unknown_key(f"{path}.{key}", known, value))
    return options


def check_point(name: str, node: Any) -> Part | None:
    """The part at the plug point ``name``; None where nothing is chosen and nothing is needed."""
    if node is None and name in OPTIONAL_PARTS:
        return None
    if not _is_part(node):
        raise ConfigError([f"{name}: found {shown(node)}, expected a component with a _target_."])
    problems: list[str] = []
    part = check_part(name, node, problems)
    _raise(problems)
    return part


def _several(name: str, nodes: Any) -> Mapping[str, Part]:
    problems: list[str] = []
    parts: dict[str, Part] = {}
    for key, node in (nodes or {}).items():
        path = f"{name}.{key}"
        if _is_part(node):
            part = check_part(path, node, problems)
            if part is not None:
                parts[key] = part
            continue
        chosen = [other for other in nodes if other != key]
        hint = did_you_mean(key, chosen, prefix=f"{name}.")
        problems.append(
            f"{path}: found {shown(node)}, expected a component with a _target_.{hint}\n"
            f"    chosen now: {', '.join(chosen) or 'none'}; choose with {name}=[...]"
        )
    _raise(problems)
    return parts


def _cross_checks(made: Mapping[str, Any]) -> list[str]:
    """Values that are well typed and still cannot work."""
    train, sft, checkpoint = made["train"], made["sft"], made["checkpoint"]
    least = [
        ("train.steps", train.steps, 0),
        ("train.tasks_per_step", train.tasks_per_step, 1),
        ("train.tokens_per_micro_batch", train.tokens_per_micro_batch, 1),
        ("evaluation.every", made["evaluation"].every, 0),
        ("checkpoint.every", checkpoint.every, 1),
        ("checkpoint.keep", checkpoint.keep, 1),
    ]
    if sft is not None:
        least += [("sft.steps", sft.steps, 1), ("sft.episodes", sft.episodes, 1)]
    problems = [f"{path}={value}: expected at least {low}." for path, value, low in least if value < low]
    if train.group_size < 2:
        problems.append(
            f"train.group_size={train.group_size}: expected at least 2, usually 4 to 16. Advantages compare "
            "the trajectories\n    of one task with each other; one alone has nothing to be compared with."
        )
    return problems


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and "_target_" in value


def _raise(problems: list[str]) -> None:
    if problems:
        raise ConfigError(problems)
