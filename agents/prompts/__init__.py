"""Prompt sets: a folder of Jinja templates per agent, with a ``prompts.yaml`` that says how to use them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
OUTPUTS = ("tagged", "bare")

_FILLER = frozenset(
    {
        "a",
        "an",
        "the",
        "you",
        "your",
        "and",
        "is",
        "are",
        "of",
        "it",
        "see",
        "at",
        "to",
        "in",
        "on",
        "from",
        "up",
    }
    | {"using", "looking", "quickly", "around", "middle", "room", "arrive", "welcome", "textworld", "alfred"}
)


def terse(text: str) -> str:
    """``text`` without articles, punctuation and other words that tell a tiny policy nothing.

    Halves the tokens of a household observation: ``You arrive at desk 1. On the desk 1, you see a mug 2.``
    becomes ``desk 1 mug 2``.
    """
    kept = " ".join(word for word in re.findall(r"\w+", text) if word.lower() not in _FILLER)
    return re.sub(r"\b(\w+ \d+) \1\b", r"\1", kept)


@dataclass(frozen=True)
class PromptSet:
    """Templates of one agent.

    ``growing``: an episode is one conversation and a template holds only what is new; otherwise every
    prompt is written afresh from its template. ``output``: ``tagged`` completions carry
    ``<action>...</action>``, ``bare`` ones are nothing but the answer.
    """

    name: str
    growing: bool
    output: str
    templates: Environment

    def render(self, template: str, **values: Any) -> str:
        """Text of ``template``; a variable the template names and nobody gave is an error."""
        return self.templates.get_template(f"{template}.j2").render(**values).strip()

    def system(self) -> str | None:
        """The system message, or None when the set has no ``system.j2``."""
        return self.render("system") if "system.j2" in self.templates.list_templates() else None


def load_prompts(name: str) -> PromptSet:
    """The prompt set ``name``: a folder here, or the path of a folder of one's own."""
    folder = HERE / name if (HERE / name).is_dir() else Path(name)
    settings_file = folder / "prompts.yaml"
    if not settings_file.is_file():
        known = ", ".join(sorted(p.parent.name for p in HERE.glob("*/prompts.yaml")))
        raise ValueError(
            f"prompts={name!r}: found no folder with a prompts.yaml. Expected one of {known}, "
            "or the path of a folder with prompts.yaml and the agent's .j2 templates."
        )
    settings = yaml.safe_load(settings_file.read_text()) or {}
    if set(settings) != {"growing", "output"} or settings["output"] not in OUTPUTS:
        raise ValueError(
            f"{settings_file}: found {settings}, expected exactly 'growing: true|false' and "
            f"'output: {'|'.join(OUTPUTS)}'."
        )
    templates = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters["terse"] = terse
    return PromptSet(name=name, growing=settings["growing"], output=settings["output"], templates=templates)
