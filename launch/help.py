"""`memgrpo train --help`: every option of every group, read from the schema, the YAML files and the sources.

Nothing is imported: a component whose package is missing is listed all the same.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from trainer.config import OPTIONAL_SECTIONS, SECTIONS
from trainer.config_check import GIVEN, MULTI_PARTS, PARTS
from trainer.config_compose import PRIMARY, config_folder, groups
from trainer.signatures import Option, read_signature

USAGE = """usage: memgrpo train [key=value ...] [-m] [--config-dir DIR]

  key=value         set an option, or choose a component of a group
  -m, --multirun    one run for each combination of values: run.seed=0,1,2 loss=grpo,dapo
  --config-dir DIR  a folder with config files of your own, arranged like configs/

Lines below: option, default, type, meaning. An experiment replaces defaults; run.dry=true shows the outcome.
A component of your own needs no registration:
  rewards.mine._target_=my.module.MyReward rewards.mine.weight=2
"""

_LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w-]+):(?P<value>[^#]*)(?:#\s*(?P<doc>.*))?$")
_WIDEST = 44
Row = tuple[str, str, str, str]


def train_help(config_dir: str | None = None) -> str:
    """The whole text, the choices in the user's own folder included."""
    roots = [*([Path(config_dir)] if config_dir is not None else []), config_folder()]
    choices, defaults = groups(config_dir), _default_choices()
    blocks = [USAGE, *(_section_help(name) for name in SECTIONS)]
    for group in (*PARTS, *MULTI_PARTS):
        texts = {choice: _read(roots, group, choice) for choice in choices.get(group, [])}
        blocks.append(_group_help(group, texts, defaults.get(group)))
    experiments = {choice: _read(roots, "experiment", choice) for choice in choices.get("experiment", [])}
    blocks.append(_experiments_help(experiments, defaults.get("experiment")))
    return "\n".join(blocks)


def _section_help(name: str) -> str:
    section = SECTIONS[name]
    note = "\n    (null unless an experiment or an option sets it)" if name in OPTIONAL_SECTIONS else ""
    rows = [(f"{name}.{f.name}", _value(f.default), str(f.type), f.metadata["help"]) for f in fields(section)]
    return f"{name}: {inspect.getdoc(section)}{note}\n{_table(rows)}"


def _group_help(group: str, texts: Mapping[str, str], default: Any) -> str:
    several = f"; several at once: {group}=[a,b]" if group in MULTI_PARTS else ""
    lines = [f"{group}: {' | '.join(texts)} (default {_value(default)}{several})"]
    for choice, text in texts.items():
        node = yaml.safe_load(text) or {}
        lines.append(f"  {group}={choice}  {_target(node)}")
        lines.append(_table(list(_rows(group, node, comments(text), ()))))
    return "\n".join(line for line in lines if line).rstrip("\n") + "\n"


def _rows(
    path: str, node: Mapping[str, Any], docs: Mapping[str, str], keys: tuple[str, ...]
) -> Iterator[Row]:
    """Options of a node: those of its file, then those that only the component itself knows."""
    options = read_signature(node["_target_"]).options if "_target_" in node else {}
    unlisted = [key for key in options if key not in node and key not in GIVEN.get(path, ())]
    for key in (*node, *unlisted):
        value, option = node.get(key), options.get(key)
        if key in ("_target_", "_partial_"):
            continue
        if isinstance(value, Mapping) and value:
            yield from _rows(f"{path}.{key}", value, docs, (*keys, key))
            continue
        default = _value(value) if key in node else _default(option)
        yield f"{path}.{key}", default, _annotation(option), docs.get(".".join((*keys, key)), "")


def _experiments_help(texts: Mapping[str, str], default: Any) -> str:
    rows = []
    for choice, text in texts.items():
        comments = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
        doc = next((comment for comment in comments if not comment.startswith("@package")), "")
        rows.append((f"experiment={choice}", "", "", doc))
    return f"experiment: values for all of the above (default {_value(default)})\n{_table(rows)}"


def _read(roots: Sequence[Path], group: str, choice: str) -> str:
    files = [root / group / f"{choice}.yaml" for root in roots]
    return next(file for file in files if file.exists()).read_text(encoding="utf-8")


def _target(node: Mapping[str, Any]) -> str:
    nodes = [inner for inner in (node, *node.values()) if isinstance(inner, Mapping)]
    return next((str(inner["_target_"]) for inner in nodes if "_target_" in inner), "")


def _default_choices() -> dict[str, Any]:
    primary = yaml.safe_load((config_folder() / f"{PRIMARY}.yaml").read_text(encoding="utf-8"))
    chosen = [item for item in primary["defaults"] if isinstance(item, dict)]
    return {key: value for item in chosen for key, value in item.items()}


def comments(text: str) -> dict[str, str]:
    """The comment behind each key of a YAML file, by dotted key."""
    docs: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        indent = len(found["indent"])
        above = [*((i, key) for i, key in above if i < indent), (indent, found["key"])]
        docs[".".join(key for _, key in above)] = (found["doc"] or "").strip()
    return docs


def _annotation(option: Option | None) -> str:
    return "" if option is None or option.annotation is None else option.annotation


def _default(option: Option | None) -> str:
    return "required" if option is None or option.default is None else option.default


def _value(value: Any) -> str:
    """A value as one writes it on the command line."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(rows: Sequence[Row]) -> str:
    widths = [max((len(row[i]) for row in rows if len(row[i]) <= _WIDEST), default=0) for i in range(3)]
    cells = [[cell.ljust(width) for cell, width in zip(row, (*widths, 0), strict=True)] for row in rows]
    return "".join(f"    {'  '.join(line).rstrip()}\n" for line in cells)
