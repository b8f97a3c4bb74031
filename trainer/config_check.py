"""From plain values to a checked `Config`: every key must exist and every value have its type.

One source of truth for each key: fixed sections are the dataclasses of `trainer.config`; below a plug
point the keys are the parameters of the ``_target_``.
"""

from __future__ import annotations

import difflib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from memory.errors import UserError
from trainer.config import OPTIONAL_SECTIONS, SECTIONS, Config
from trainer.parts import Part
from trainer.signatures import Option, TargetError, annotation_type, read_signature

PARTS = ("env", "agent", "retriever", "memory", "distiller", "teacher", "advantage", "engine", "loss", "policy")
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

LAUNCH_KEYS: Mapping[str, tuple[str, ...]] = {"engine": ("processes",)}
"""Keys beside a part's options that the launcher reads before the part exists."""

_SHOWN_PROBLEMS = 8
_NODE_KEYS = ("_target_", "_partial_")
T = TypeVar("T")


class ConfigError(UserError):
    """The config is wrong; every problem on its own lines."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        shown = [f"  {problem}" for problem in self.problems[:_SHOWN_PROBLEMS]]
        if len(self.problems) > _SHOWN_PROBLEMS:
            shown.append(f"  ... and {len(self.problems) - _SHOWN_PROBLEMS} more")
        super().__init__("\n".join(["The configuration is wrong:", *shown]))


def check_config(values: Mapping[str, Any]) -> Config:
    """The checked config of plain resolved ``values``.

    All problems of the first faulty section or part are reported together: `ConfigError`.
    """
    known = (*SECTIONS, *PARTS, *MULTI_PARTS)
    _raise([unknown_key(key, known, values[key]) for key in values if key not in known])
    made: dict[str, Any] = {}
    for name, section in SECTIONS.items():
        made[name] = _section(name, section, values.get(name))
    _raise(_cross_checks(made))
    for name in MULTI_PARTS:
        made[name] = _several(name, values.get(name))
    values_of_parts = dict(values)
    made["processes"], values_of_parts["engine"] = _take_processes(values.get("engine"))
    for name in PARTS:
        made[name] = _single(name, values_of_parts.get(name))
    if made["sft"] is not None and made["teacher"] is None:
        raise ConfigError(["sft: found no teacher, expected one to imitate. Choose teacher=household or sft=null."])
    return Config(**made, resolved=values)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?`` with the nearest of ``known``, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else ""


def unknown_key(path: str, known: Iterable[str], value: Any = MISSING) -> str:
    """The problem text of a key that does not exist among its siblings ``known``."""
    parent, _, key = path.rpartition(".")
    prefix = f"{parent}." if parent else ""
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    hint = f" Did you mean {prefix}{near[0]}?" if near else ""
    given = "" if value is MISSING or isinstance(value, Mapping) else f"={value}"
    return f"{path}{given}: no such option.{hint}\n    {parent or 'the config'} has: {', '.join(sorted(known)) or 'no options'}"


def _raise(problems: list[str]) -> None:
    if problems:
        raise ConfigError(problems)


def _section(name: str, section: type[T], values: Any) -> T | None:
    if values is None:
        if name in OPTIONAL_SECTIONS:
            return None
        raise ConfigError([f"{name}: found nothing, expected a section with options."])
    problems: list[str] = []
    made = _structure(name, section, values, problems)
    _raise(problems)
    return made


def _structure(path: str, cls: type[T], values: Any, problems: list[str]) -> T | None:
    """An instance of dataclass ``cls`` from a mapping; None with entries in ``problems`` otherwise."""
    if not isinstance(values, Mapping):
        problems.append(f"{path}: found {_shown(values)}, expected a section with options.")
        return None
    before = len(problems)
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    problems += [unknown_key(f"{path}.{key}", names, values[key]) for key in values if key not in names]
    hints = typing.get_type_hints(cls)
    made = {}
    for f in fields(cls):  # type: ignore[arg-type]
        if f.name in values:
            made[f.name] = convert(f"{path}.{f.name}", values[f.name], hints[f.name], problems)
        elif f.default is MISSING and f.default_factory is MISSING:
            problems.append(f"{path}.{f.name}: missing, expected {type_name(hints[f.name])}.")
    return cls(**made) if len(problems) == before else None


def convert(path: str, value: Any, annotation: Any, problems: list[str]) -> Any:
    """``value`` as the type ``annotation``; a mismatch becomes an entry of ``problems``."""
    if isinstance(value, Mapping) and "_target_" in value:
        return check_part(path, value, problems)
    if _holds_parts(value):
        return _convert_items(path, value, problems)
    section = _dataclass_of(annotation)
    if section is not None and value is not None:
        return _structure(path, section, value, problems)
    if value == "???":
        problems.append(f"{path}: missing, expected {type_name(annotation)}. Give it a value.")
        return None
    try:
        adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
        # Strict JSON rules are those of a config file: a list may become a tuple and a name an enum,
        # but text never becomes a number.
        return adapter.validate_json(json.dumps(value), strict=True)
    except (ValidationError, PydanticUserError, TypeError):
        problems.append(_wrong_type(path, value, annotation))
        return None


def _convert_items(path: str, value: Any, problems: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {k: convert(f"{path}.{k}", item, Any, problems) for k, item in value.items()}
    return tuple(convert(f"{path}[{i}]", item, Any, problems) for i, item in enumerate(value))


def check_part(path: str, node: Mapping[str, Any], problems: list[str]) -> Part | None:
    """A `Part` whose options fit the parameters of its target, except those in `GIVEN`."""
    given = GIVEN.get(path, frozenset())
    target = node["_target_"]
    if not isinstance(target, str) or target == "???":
        problems.append(f"{path}._target_: found {_shown(target)}, expected the dotted path of a class or function.")
        return None
    try:
        signature = read_signature(target)
    except TargetError as error:
        problems.append(f"{path}._target_={target}: {error}.\n    Expected the dotted path of a class or function.")
        return None
    partial = node.get("_partial_", False)
    if not isinstance(partial, bool):
        problems.append(f"{path}._partial_: found {_shown(partial)}, expected true or false.")
    known = {name: o for name, o in signature.options.items() if name not in given}
    options = {}
    for key, value in node.items():
        if key in _NODE_KEYS:
            continue
        if key in given:
            problems.append(f"{path}.{key}: memgrpo sets this itself. Remove it.")
        elif key not in signature.options and not signature.open_ended:
            problems.append(unknown_key(f"{path}.{key}", (*known, *LAUNCH_KEYS.get(path, ())), value))
        else:
            annotation = annotation_type(signature.options[key]) if key in signature.options else Any
            options[key] = convert(f"{path}.{key}", value, annotation, problems)
    if not partial:
        problems += [_missing(path, o) for o in known.values() if o.default is None and o.name not in node]
    return Part(path, target, options, bool(partial))


def _missing(path: str, option: Option) -> str:
    return f"{path}.{option.name}: missing, expected {option.annotation or 'a value'}."


def _take_processes(engine: Any) -> tuple[int, Any]:
    """``engine.processes`` is read by the launcher, before there is an engine; the rest is the engine's."""
    if not isinstance(engine, Mapping):
        return 1, engine
    problems: list[str] = []
    processes = convert("engine.processes", engine.get("processes", 1), int, problems)
    if not problems and processes < 1:
        problems.append(f"engine.processes={processes}: expected at least 1.")
    _raise(problems)
    return processes, {key: value for key, value in engine.items() if key != "processes"}


def _single(name: str, node: Any) -> Part | None:
    if node is None and name in OPTIONAL_PARTS:
        return None
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError([f"{name}: found {_shown(node)}, expected a component with a _target_."])
    problems: list[str] = []
    part = check_part(name, node, problems)
    _raise(problems)
    return part


def _several(name: str, nodes: Any) -> Mapping[str, Part]:
    problems: list[str] = []
    parts: dict[str, Part] = {}
    for key, node in (nodes or {}).items():
        path = f"{name}.{key}"
        if not isinstance(node, Mapping) or "_target_" not in node:
            hint = did_you_mean(key, [k for k in nodes if k != key])
            problems.append(
                f"{path}: found {_shown(node)}, expected a component with a _target_.{hint}\n"
                f"    Chosen now: {', '.join(k for k in nodes if k != key) or 'none'}. Choose with {name}=[...]"
            )
            continue
        part = check_part(path, node, problems)
        if part is not None:
            parts[key] = part
    _raise(problems)
    return parts


def _cross_checks(made: Mapping[str, Any]) -> list[str]:
    """Values that are well typed and still cannot work."""
    problems = []
    train = made["train"]
    if train.group_size < 2:
        problems.append(
            f"train.group_size={train.group_size}: expected at least 2. Advantages compare the trajectories "
            f"of one task with each other; one alone always gets 0. Usual values are 4 to 16."
        )
    if made["sft"] is not None and made["sft"].steps < 1:
        problems.append(f"sft.steps={made['sft'].steps}: expected at least 1, or sft=null for no warm start.")
    counts = [("train.steps", train.steps, 0), ("train.tasks_per_step", train.tasks_per_step, 1)]
    counts += [("evaluation.every", made["evaluation"].every, 0), ("checkpoint.every", made["checkpoint"].every, 1)]
    counts += [("checkpoint.keep", made["checkpoint"].keep, 1)]
    counts += [("train.tokens_per_micro_batch", train.tokens_per_micro_batch, 1)]
    problems += [f"{path}={value}: expected at least {least}." for path, value, least in counts if value < least]
    return problems


def _holds_parts(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(isinstance(item, Mapping) and "_target_" in item for item in value.values())
    return isinstance(value, list) and any(isinstance(item, Mapping) and "_target_" in item for item in value)


def _dataclass_of(annotation: Any) -> type | None:
    """The dataclass of ``D`` or ``D | None``."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    choices = typing.get_args(annotation) if is_union else (annotation,)
    found = [c for c in choices if isinstance(c, type) and is_dataclass(c)]
    return found[0] if len(found) == 1 else None


def _wrong_type(path: str, value: Any, annotation: Any) -> str:
    hint = ""
    if isinstance(value, str):
        hint = did_you_mean(value, [c for c in _choices(annotation) if isinstance(c, str)])
    return f"{path}: found {_shown(value)}, expected {type_name(annotation)}.{hint}"


def _choices(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    if hasattr(annotation, "__members__"):
        return tuple(member.value for member in annotation)
    return tuple(choice for part in typing.get_args(annotation) for choice in _choices(part))


def type_name(annotation: Any) -> str:
    """An annotation as a person reads it: ``one of 'a', 'b'``, ``int or null``, ``list of float``."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is typing.Literal or hasattr(annotation, "__members__"):
        return "one of " + ", ".join(str(choice) for choice in _choices(annotation))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(part) for part in parts)
    if origin in (list, tuple) or getattr(origin, "__name__", "") in ("Sequence", "Iterable"):
        return f"list of {type_name(parts[0])}"
    if annotation is bool:
        return "true or false"
    if isinstance(annotation, type) and origin is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _shown(value: Any) -> str:
    kinds = {str: "text", bool: "true/false", int: "int", float: "float", type(None): "null"}
    kind = kinds.get(type(value), "list" if isinstance(value, list) else "section")
    text = "" if value is None else f"{value!r} "
    return f"{text if len(text) < 80 else text[:77] + '... '}({kind})" if text else "null"
