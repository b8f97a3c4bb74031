"""Types of config values: what fits, what a person reads, what was probably meant."""

from __future__ import annotations

import difflib
import json
import types
import typing
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

UNSET: Any = object()


def convert_value(path: str, value: Any, annotation: Any, problems: list[str]) -> Any:
    """``value`` as the type ``annotation``; a mismatch becomes an entry of ``problems``.

    Rules of strict JSON, which are those of a config file: a list may become a tuple and a name an
    enum, but text never becomes a number.
    """
    if value == "???":
        problems.append(f"{path}: missing, expected {type_name(annotation)}. Give it a value.")
        return None
    try:
        adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
        return adapter.validate_json(json.dumps(value), strict=True)
    except (ValidationError, PydanticUserError, TypeError):
        problems.append(_wrong_type(path, value, annotation))
        return None


def dataclass_of(annotation: Any) -> type | None:
    """The dataclass of ``D`` or ``D | None``."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    choices = typing.get_args(annotation) if is_union else (annotation,)
    found = [c for c in choices if isinstance(c, type) and is_dataclass(c)]
    return found[0] if len(found) == 1 else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`` Did you mean ...?`` with the nearest of ``known``, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {prefix}{near[0]}?" if near else ""


def unknown_key(path: str, known: Iterable[str], value: Any = UNSET) -> str:
    """The problem text of a key that does not exist among its siblings ``known``."""
    parent, _, key = path.rpartition(".")
    names = sorted(known)
    hint = did_you_mean(key, names, prefix=f"{parent}." if parent else "")
    given = "" if value is UNSET or isinstance(value, dict) else f"={value}"
    siblings = ", ".join(names) or "no options"
    return f"{path}{given}: no such option.{hint}\n    {parent or 'the config'} has: {siblings}"


def type_name(annotation: Any) -> str:
    """An annotation as a person reads it: ``one of a, b``, ``int or null``, ``list of float``."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None or annotation is type(None):
        return "null"
    if origin is typing.Literal or hasattr(annotation, "__members__"):
        return "one of " + ", ".join(str(choice) for choice in _choices(annotation))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(part) for part in parts)
    if origin in (list, tuple) or getattr(origin, "__name__", "") in ("Sequence", "Iterable"):
        return f"list of {type_name(parts[0])}"
    if annotation is bool:
        return "true or false"
    if annotation is str:
        return "text"
    if isinstance(annotation, type) and origin is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def shown(value: Any) -> str:
    """A value and its kind, short enough for one line."""
    if value is None:
        return "null"
    kinds = {str: "text", bool: "true/false", int: "int", float: "float", list: "list", dict: "section"}
    text = repr(value)
    return f"{text if len(text) < 80 else text[:77] + '...'} ({kinds.get(type(value), type(value).__name__)})"


def _wrong_type(path: str, value: Any, annotation: Any) -> str:
    names = [choice for choice in _choices(annotation) if isinstance(choice, str)]
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    return f"{path}: found {shown(value)}, expected {type_name(annotation)}.{hint}"


def _choices(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is typing.Literal:
        return typing.get_args(annotation)
    if hasattr(annotation, "__members__"):
        return tuple(member.value for member in annotation)
    return tuple(choice for part in typing.get_args(annotation) for choice in _choices(part))
