"""The rules of the household in PDDL, for game files that the official engine can play."""

from __future__ import annotations

import re

from envs.household.game import Facts, GameFacts, Goal
from envs.household.wording import Wording

GOAL_PROPERTIES = {"isclean": "cleanable", "ishot": "heatable", "iscool": "coolable"}

_REACHABLE = "(or (not (openable ?r)) (opened ?r))"
_HERE = "(atLocation ?a ?l) (receptacleAtLocation ?r ?l)"


def _action(name: str, parameters: str, precondition: str, effect: str) -> str:
    given = f"(and {precondition})" if precondition else "()"
    lines = (
        f"(:action {name}",
        f":parameters ({parameters})",
        f":precondition {given}",
        f":effect (and {effect})",
    )
    return "\n  ".join(lines) + "\n)\n"


def _appliance(name: str, able: str, kinds: str, effect: str) -> str:
    return _action(
        name,
        "?a - agent ?l - location ?r - receptacle ?o - object",
        f"({able} ?o) {kinds} {_HERE} (holds ?a ?o)",
        f"(increase (total-cost) 5) {effect}",
    )


_AGENT_AND_RECEPTACLE = "?a - agent ?l - location ?r - receptacle"
_ACTIONS = "\n".join(
    (
        _action("look", "?a - agent ?l - location", "(atLocation ?a ?l)", "(checked ?l)"),
        _action("inventory", "?a - agent", "", "(checked ?a)"),
        _action(
            "examineReceptacle",
            "?a - agent ?r - receptacle",
            f"(exists (?l - location) (and {_HERE}))",
            "(checked ?r)",
        ),
        _action(
            "examineObject",
            "?a - agent ?o - object",
            "(holds ?a ?o)",
            "(checked ?o)",
        ),
        _action(
            "GotoLocation",
            "?a - agent ?lStart - location ?lEnd - location ?r - receptacle",
            "(atLocation ?a ?lStart) (receptacleAtLocation ?r ?lEnd)",
            "(not (atLocation ?a ?lStart)) (atLocation ?a ?lEnd) (increase (total-cost) 1)",
        ),
        _action(
            "OpenObject",
            _AGENT_AND_RECEPTACLE,
            f"(openable ?r) {_HERE} (not (opened ?r))",
            "(opened ?r) (checked ?r) (increase (total-cost) 1)",
        ),
        _action(
            "CloseObject",
            _AGENT_AND_RECEPTACLE,
            f"(openable ?r) {_HERE} (opened ?r)",
            "(not (opened ?r)) (increase (total-cost) 1)",
        ),
        _action(
            "PickupObject",
            "?a - agent ?l - location ?o - object ?r - receptacle",
            f"(pickupable ?o) {_HERE} (inReceptacle ?o ?r) (not (holdsAny ?a)) {_REACHABLE}",
            "(not (inReceptacle ?o ?r)) (holds ?a ?o) (holdsAny ?a) (not (objectAtLocation ?o ?l)) "
            "(increase (total-cost) 1)",
        ),
        _action(
            "PutObject",
            "?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype",
            f"(holds ?a ?o) {_HERE} {_REACHABLE} "
            "(objectType ?o ?ot) (receptacleType ?r ?rt) (canContain ?rt ?ot)",
            "(inReceptacle ?o ?r) (objectAtLocation ?o ?l) (not (holds ?a ?o)) (not (holdsAny ?a)) "
            "(increase (total-cost) 1)",
        ),
        _appliance(
            "CleanObject",
            "cleanable",
            "(or (receptacleType ?r SinkType) (receptacleType ?r SinkBasinType))",
            "(isClean ?o)",
        ),
        _appliance(
            "HeatObject", "heatable", "(receptacleType ?r MicrowaveType)", "(isHot ?o) (not (isCool ?o))"
        ),
        _appliance(
            "CoolObject", "coolable", "(receptacleType ?r FridgeType)", "(isCool ?o) (not (isHot ?o))"
        ),
        _action(
            "ToggleObject",
            "?a - agent ?l - location ?o - object ?r - receptacle",
            f"(toggleable ?o) {_HERE} (inReceptacle ?o ?r)",
            "(increase (total-cost) 5) (when (isOn ?o) (not (isOn ?o))) (when (not (isOn ?o)) (isOn ?o)) "
            "(isToggled ?o)",
        ),
        _action(
            "SliceObject",
            "?a - agent ?l - location ?co - object ?ko - object",
            "(sliceable ?co) (or (objectType ?ko KnifeType) (objectType ?ko ButterKnifeType)) "
            "(atLocation ?a ?l) (objectAtLocation ?co ?l) (holds ?a ?ko)",
            "(increase (total-cost) 5) (isSliced ?co)",
        ),
    )
)

_HEAD = """(define (domain alfred)
(:requirements :adl :action-costs :typing)
(:types agent location receptacle object rtype otype)
(:predicates
  (atLocation ?a - agent ?l - location)
  (receptacleAtLocation ?r - receptacle ?l - location)
  (objectAtLocation ?o - object ?l - location)
  (openable ?r - receptacle)
  (opened ?r - receptacle)
  (inReceptacle ?o - object ?r - receptacle)
  (isReceptacleObject ?o - object)
  (inReceptacleObject ?inner - object ?outer - object)
  (isReceptacleObjectFull ?o - object)
  (wasInReceptacle ?o - object ?r - receptacle)
  (checked ?r - receptacle)
  (examined ?l - location)
  (receptacleType ?r - receptacle ?t - rtype)
  (canContain ?rt - rtype ?ot - otype)
  (objectType ?o - object ?t - otype)
  (holds ?a - agent ?o - object)
  (holdsAny ?a - agent)
  (holdsAnyReceptacleObject ?a - agent)
  (full ?r - receptacle)
  (isClean ?o - object)
  (cleanable ?o - object)
  (isHot ?o - object)
  (heatable ?o - object)
  (isCool ?o - object)
  (coolable ?o - object)
  (pickupable ?o - object)
  (moveable ?o - object)
  (toggleable ?o - object)
  (isOn ?o - object)
  (isToggled ?o - object)
  (sliceable ?o - object)
  (isSliced ?o - object)
)
(:functions (distance ?from ?to) (total-cost) - number)
"""

PREDICATES = {
    name: arguments.count("?")
    for name, arguments in re.findall(r"^  \(([a-z]+) (.*)\)", _HEAD.lower(), re.MULTILINE)
}
"""Lower-case names of all facts that a game may state, with their number of arguments."""


def write_domain(wording: Wording) -> str:
    """PDDL domain for a dialect: only the new one knows the command `help`."""
    actions = _ACTIONS
    if wording.help_text is not None:
        actions += "\n" + _action("help", "?a - agent", "", "(checked ?a)")
    return f"{_HEAD}\n{actions})\n"


_SORTS = {
    "receptacleatlocation": ("receptacle", "location"),
    "receptacletype": ("receptacle", "rtype"),
    "inreceptacle": ("object", "receptacle"),
    "objectatlocation": ("object", "location"),
    "objecttype": ("object", "otype"),
    "cancontain": ("rtype", "otype"),
    "atlocation": ("agent", "location"),
}


def write_problem(game: GameFacts) -> str:
    """PDDL problem of a game; every entity is declared with its type."""
    facts = game.facts
    sorts: dict[str, str] = {"sinktype": "rtype", "sinkbasintype": "rtype", "microwavetype": "rtype"}
    sorts |= {"fridgetype": "rtype", "knifetype": "otype", "butterknifetype": "otype"}
    for predicate, kinds in _SORTS.items():
        for row in facts.get(predicate, ()):
            sorts |= dict(zip(row, kinds, strict=True))
    objects = "\n  ".join(f"{entity} - {sort}" for entity, sort in sorts.items())
    return (
        f"(define (problem household)\n(:domain alfred)\n(:objects\n  {objects}\n)\n"
        f"(:init\n  (= (total-cost) 0)\n  {_write_facts(facts)}\n)\n(:goal {_write_goal(game.goal)})\n)\n"
    )


def _write_facts(facts: Facts) -> str:
    return "\n  ".join(f"({name} {' '.join(row)})" for name, rows in facts.items() for row in rows)


def _write_goal(goal: Goal) -> str:
    kind = f"{goal.object_type}type"
    if goal.lamp_type:
        return (
            "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) "
            f"(and (objectType ?ot {goal.lamp_type}type) (toggleable ?ot) (isToggled ?ot) "
            f"{_HERE} (inReceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and (objectType ?o {kind}) (holds ?a ?o))))"
        )
    place = f"(receptacleType ?r {goal.receptacle_type}type)"
    wanted = " ".join(f"({GOAL_PROPERTIES[name]} {{o}}) ({name} {{o}})" for name in goal.properties)
    each = f"(objectType {{o}} {kind}) (inReceptacle {{o}} ?r) {wanted}"
    first = each.format(o="?o1")
    if goal.count == 1:
        return f"(exists (?r - receptacle) (exists (?o1 - object) (and {place} {first})))"
    second = f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {place} {each.format(o='?o2')}))"
    return f"(exists (?r - receptacle) (exists (?o1 - object) (and {place} {first} {second})))"
