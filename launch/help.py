"""`memgrpo train --help`: every option of every group, read from the schema, the YAML files and the sources.

Nothing is imported: a component whose package is missing is listed all the same.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from trainer.config import OPTIONAL_SECTIONS, SECTIONS
from trainer.config_check import GIVEN, LAUNCH_KEYS, MULTI_PARTS, PARTS
from trainer.config_compose import PRIMARY, config_folder, groups
from trainer.signatures import read_signature

USAGE = """usage: memgrpo train [key=value ...] [-m] [--config-dir DIR]

  key=value         set an option, or choose a component of a group
  -m, --multirun    one run for each combination of values: run.seed=0,1,2 loss=grpo,dapo
  --config-dir DIR  a folder with config files of your own, arranged like configs/

A component of your own needs no registration: rewards.mine._target_=my.module.MyReward rewards.mine.weight=2
"""

_LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w-]+):(?P<value>[^#]*)(?:#\s*(?P<doc>.*))?$")
Row = tuple[str, str, str, str]


def train_help(config_dir: str | None = None) -> str:
    """The whole text; a row is key, default, type, meaning."""
    files = groups(config_dir)
    roots = [Path(config_dir)] if config_dir is not None else []
    blocks = [USAGE, *(_section_help(name) for name in SECTIONS)]
    defaults = _default_choices()
    for group in (*PARTS, *MULTI_PARTS):
        blocks.append(_group_help(group, files.get(group, []), defaults.get(group), [*roots, config_folder()]))
    blocks.append(_experiments_help(files.get("experiment", []), defaults.get("experiment"), [*roots, config_folder()]))
    return "\n".join(blocks)


def _section_help(name: str) -> str:
    section = SECTIONS[name]
    optional = " (null by default; the defaults below hold once it is there)" if name in OPTIONAL_SECTIONS else ""
    rows = [(f"{name}.{f.name}", _value(f.default), str(f.type), f.metadata["help"]) for f in fields(section)]
    return f"{name}: {inspect.getdoc(section)}{optional}\n{_table(rows)}"


def _group_help(group: str, choices: list[str], default: Any, roots: list[Path]) -> str:
    several = f", several at once: {group}=[a,b]" if group in MULTI_PARTS else ""
    lines = [f"{group}: {' | '.join(choices)} (default {_value(default)}{several})"]
    for choice in choices:
        file = next(root / group / f"{choice}.yaml" for root in roots if (root / group / f"{choice}.yaml").exists())
        text = file.read_text(encoding="utf-8")
        node, docs = yaml.safe_load(text) or {}, _comments(text)
        rows = list(_rows(group, node, docs, ()))
        target = node.get("_target_") or next((n["_target_"] for n in node.values() if isinstance(n, Mapping)), "")
        lines.append(f"  {group}={choice}  {target}\n{_table(rows)}".rstrip("\n"))
    return "\n".join(lines) + "\n"


def _rows(path: str, node: Mapping[str, Any], docs: Mapping[str, str], keys: tuple[str, ...]) -> Iterator[Row]:
    options = read_signature(node["_target_"]).options if "_target_" in node else {}
    given = GIVEN.get(path, frozenset())
    extra = [key for key in options if key not in node and key not in given]
    for key in (*node, *extra):
        place = (*keys, key)
        value = node.get(key)
        if key in ("_target_", "_partial_"):
            continue
        if isinstance(value, Mapping) and value:
            yield from _rows(f"{path}.{key}", value, docs, place)
            continue
        option = options.get(key)
        kind = "int" if key in LAUNCH_KEYS.get(path, ()) else (option.annotation or "" if option else "")
        default = _value(value) if key in node else (option.default or "required" if option else "")
        yield f"{path}.{key}", default, kind, docs.get(".".join(place), "")


def _experiments_help(choices: list[str], default: Any, roots: list[Path]) -> str:
    rows = []
    for choice in choices:
        file = next(r / "experiment" / f"{choice}.yaml" for r in roots if (r / "experiment" / f"{choice}.yaml").exists())
        comments = [line[1:].strip() for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        rows.append((f"experiment={choice}", "", "", next((c for c in comments if not c.startswith("@")), "")))
    return f"experiment: values for all of the above (default {_value(default)})\n{_table(rows)}"


def _default_choices() -> dict[str, Any]:
    primary = yaml.safe_load((config_folder() / f"{PRIMARY}.yaml").read_text(encoding="utf-8"))
    return {key: value for item in primary["defaults"] if isinstance(item, dict) for key, value in item.items()}


def _comments(text: str) -> dict[str, str]:
    """The comment behind each key of a YAML file, by dotted key."""
    docs: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        indent = len(found["indent"])
        above = [(i, key) for i, key in above if i < indent]
        above.append((indent, found["key"]))
        docs[".".join(key for _, key in above)] = (found["doc"] or "").strip()
    return docs


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return {True: "true", False: "false", None: "null"}[value] if value is None or value is True or value is False else str(value)


def _table(rows: list[Row]) -> str:
    widths = [max((min(len(row[i]), 44) for row in rows), default=0) for i in range(3)]
    return "".join(
        "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)).rstrip() + "\n"
        for row in rows
    )
