"""Reading and writing ALFWorld's `game.tw-pddl` files."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.household.domain import GOAL_PROPERTIES, PREDICATES, write_domain, write_problem
from envs.household.errors import GameFileError
from envs.household.game import GameFacts, Goal
from envs.household.wording import OLD, WORDINGS, read_wording, write_grammar

_FACT = re.compile(r"\(\s*([^\s()]+)((?:\s+[^\s()]+)+)\s*\)")
_COMMENT = re.compile(r";[^\n]*")
_SPACE = re.compile(r"\s+")
_IGNORED = frozenset({"distance"})
_OFFICIAL_DOMAINS = frozenset({"5d9550c7b5ec75d9", "f23be92a659bdfe6"})
"""Fingerprints of the domains of ALFWorld's published games, new and old dialect."""


def parse_game(text: str, source: str) -> GameFacts:
    """Facts of a game file's text; ``source`` names it in errors.

    Raises GameFileError for truncated files, other rules than ALFWorld's, unknown wording or goals.
    """
    data = _load_json(text, source)
    _check_domain(data["pddl_domain"], source)
    wording, task = read_wording(data["grammar"], source)
    problem = data["pddl_problem"]
    head, init, rest = problem.partition("(:init")
    start, goal_mark, goal = rest.partition("(:goal")
    if not (init and goal_mark and head):
        raise GameFileError(source, "a problem without (:init ...) or (:goal ...)", "both sections")
    return GameFacts(task, wording, parse_goal(goal, source), _parse_facts(start, source), source)


def read_game(path: Path) -> GameFacts:
    """Facts of the game file at ``path``. OSError and undecodable text become GameFileError."""
    try:
        return parse_game(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise GameFileError(
            str(path), f"that it cannot be read ({error})", "a readable UTF-8 file"
        ) from error


def write_game(game: GameFacts, walkthrough: tuple[str, ...]) -> str:
    """Text of a game file that the official engine plays as this engine does."""
    data: dict[str, Any] = {
        "pddl_domain": write_domain(game.wording),
        "grammar": write_grammar(game.wording, game.task),
        "pddl_problem": write_problem(game),
        "solvable": True,
    }
    if game.wording is not OLD:
        data["walkthrough"] = list(walkthrough)
    return json.dumps(data)


def _load_json(text: str, source: str) -> dict[str, str]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise GameFileError(
            source, f"broken JSON ({error})", "a whole JSON object; is the file truncated?"
        ) from error
    needed = ("pddl_domain", "grammar", "pddl_problem")
    if not isinstance(data, dict) or not all(isinstance(data.get(key), str) for key in needed):
        found = f"the keys {sorted(data)}" if isinstance(data, dict) else f"a JSON {type(data).__name__}"
        raise GameFileError(source, found, f"an object with the texts {', '.join(needed)}")
    return data


@lru_cache(maxsize=16)
def domain_fingerprint(domain: str) -> str:
    """Hash of the rules without comments, blanks and case."""
    plain = _SPACE.sub(" ", _COMMENT.sub("", domain)).replace("( ", "(").replace(" )", ")").strip().lower()
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _own_domains() -> frozenset[str]:
    return frozenset(domain_fingerprint(write_domain(wording)) for wording in WORDINGS.values())


def _check_domain(domain: str, source: str) -> None:
    if domain_fingerprint(domain) not in _OFFICIAL_DOMAINS | _own_domains():
        raise GameFileError(
            source, "rules that are not ALFWorld's (pddl_domain)", "the published alfred domain"
        )


def _parse_facts(start: str, source: str) -> dict[str, list[tuple[str, ...]]]:
    facts: dict[str, list[tuple[str, ...]]] = {}
    for predicate, arguments in _FACT.findall(_COMMENT.sub("", start).lower()):
        if predicate in _IGNORED:
            continue
        row = tuple(arguments.split())
        if PREDICATES.get(predicate) != len(row):
            raise GameFileError(source, f"the fact ({predicate}{arguments})", "facts of the alfred domain")
        facts.setdefault(predicate, []).append(row)
    if "receptacleatlocation" not in facts:
        raise GameFileError(source, "no receptacle at any place", "at least one receptacleAtLocation fact")
    return facts


def parse_goal(text: str, source: str) -> Goal:
    """The goal of a problem, one of the six that ALFWorld has."""
    atoms = [(name, rest.split()) for name, rest in _FACT.findall(text.lower()) if "-" not in rest.split()]
    types: dict[str, list[str]] = {}
    for name, arguments in atoms:
        if name in ("objecttype", "receptacletype"):
            types.setdefault(name + arguments[0], []).append(arguments[1].removesuffix("type"))
    names = {name for name, _ in atoms}
    toggled = {arguments[0] for name, arguments in atoms if name == "istoggled"}
    held = {arguments[1] for name, arguments in atoms if name == "holds"}
    try:
        if toggled and held:
            return Goal(types[f"objecttype{held.pop()}"][0], lamp_type=types[f"objecttype{toggled.pop()}"][0])
        placed = [arguments for name, arguments in atoms if name == "inreceptacle"]
        kinds = {types[f"objecttype{entity}"][0] for entity, _ in placed}
        wanted = {types[f"receptacletype{receptacle}"][0] for _, receptacle in placed}
        (kind,), (receptacle_type,) = kinds, wanted
    except (KeyError, ValueError) as error:
        found = f"the goal {_SPACE.sub(' ', text)[:200]!r}"
        raise GameFileError(source, found, "one of the six goals of ALFWorld") from error
    properties = tuple(sorted(names & set(GOAL_PROPERTIES)))
    return Goal(kind, receptacle_type, properties, count=len(placed))
