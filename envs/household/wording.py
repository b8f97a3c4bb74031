"""The sentences of ALFWorld games: both published dialects, read from and written to game files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from envs.household.errors import GameFileError

HELP = """
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


@dataclass(frozen=True, slots=True)
class Wording:
    """What differs between the dialects. ``arrival`` is the entity named on arrival, ``r`` or ``lend``."""

    name: str
    put_command: str
    put_reply: str
    arrival: str
    help_text: str | None


NEW = Wording("new", "move {o} to {r}", "You move the {o} to the {r}.", "r", HELP)
OLD = Wording("old", "put {o} in/on {r}", "You put the {o} in/on the {r}.", "lend", None)
WORDINGS = {wording.name: wording for wording in (NEW, OLD)}

_HERE = "atlocation(a:agent, l:location) & receptacleatlocation(r:receptacle, l:location)"
_FLOOR = (
    "atlocation(a:agent, l:location) & objectatlocation(o:object, l:location) & "
    "receptacleatlocation(r:receptacle, l:location) & not_inreceptacle(o:object, r:receptacle)"
)
_CONTENTS = "[{o.indefinite + ' ' + o.name | inreceptacle(o:object, r:receptacle)}]"


def _state(*predicates: str) -> str:
    return " & ".join(f"{predicate}(o:object)" for predicate in predicates)


_Rule = list[tuple[str, str]]
_RULES: dict[str, _Rule] = {
    "intro": [("", "-= Welcome to TextWorld, ALFRED! =-\n\n#look.feedback#\n\n#task#")],
    "OpenObject.feedback": [("", "You open the {r.name}. #examineReceptacle.feedback#")],
    "CloseObject.feedback": [("", "You close the {r.name}.")],
    "PickupObject.feedback": [("", "You pick up the {o.name} from the {r.name}.")],
    "inventory.feedback": [
        (
            "holdsany(a:agent)",
            "You are carrying: [{o.indefinite + ' ' + o.name | holds(a:agent, o:object)}].",
        ),
        ("", "You are not carrying anything."),
    ],
    "examineReceptacle.feedback": [
        (
            "openable(r:receptacle) & opened(r:receptacle)",
            f"The {{r.name}} is open. In it, you see {_CONTENTS}.",
        ),
        ("openable(r:receptacle)", "The {r.name} is closed."),
        ("", f"On the {{r.name}}, you see {_CONTENTS}."),
    ],
    "examineObject.feedback": [
        (
            _state("isreceptacleobject"),
            "This is a normal {o.name}. In it, you see "
            "[{o2.indefinite + ' ' + o2.name | inreceptacleobject(o2:object, o:object)}].",
        ),
        (_state("isclean", "ishot", "issliced"), "This is a hot and clean sliced {o.name}."),
        (_state("isclean", "iscool", "issliced"), "This is a cool and clean sliced {o.name}."),
        (_state("isclean", "issliced"), "This is a clean sliced {o.name}."),
        (_state("ishot", "issliced"), "This is a hot sliced {o.name}."),
        (_state("iscool", "issliced"), "This is a cool sliced {o.name}."),
        (_state("isclean", "ishot"), "This is a hot and clean {o.name}."),
        (_state("isclean", "iscool"), "This is a cool and clean {o.name}."),
        (_state("ishot"), "This is a hot {o.name}."),
        (_state("isclean"), "This is a clean {o.name}."),
        (_state("iscool"), "This is a cold {o.name}."),
        (_state("toggleable", "istoggled"), "This {o.name} is on."),
        (_state("toggleable", "not_istoggled"), "This {o.name} is off."),
        (_state("sliceable", "issliced"), "This is a sliced {o.name}."),
        ("", "There's nothing special about {o.name}."),
    ],
    "toggleObject.feedback": [
        (_state("toggleable", "istoggled"), "You turn on the {o.name}."),
        (_state("toggleable"), "You turn off the {o.name}."),
        ("", "You don't see any switch on the {o.name}."),
    ],
    "heatObject.feedback": [("", "You heat the {o.name} using the {r.name}.")],
    "cleanObject.feedback": [("", "You clean the {o.name} using the {r.name}.")],
    "coolObject.feedback": [("", "You cool the {o.name} using the {r.name}.")],
    "sliceObject.feedback": [("", "You sliced the {co.name} with the {ko.name}.")],
    "look.feedback": [
        (_HERE, "#look-variations#. Next to it, you see #list_objects_on_the_floor#."),
        ("", "You are in the middle of a room. Looking quickly around you, you see #list_appliances#."),
    ],
    "look-variations": [("", f"You are facing the [{{r.name | {_HERE}}}]")],
    "list_objects_on_the_floor": [(_FLOOR, f"[{{#overview(o)# | {_FLOOR}}}]"), ("", "nothing")],
    "list_appliances": [
        (
            "receptacleatlocation(r:receptacle, l:location)",
            "[{#overview(r)# | receptacleatlocation(r:receptacle, l:location)}]",
        ),
        ("", "nothing"),
    ],
    "overview(o)": [("", "{o.indefinite} {o.name}")],
    "overview(r)": [("", "{r.indefinite} {r.name or r.id}")],
    "list_empty": [("", "nothing")],
    "list_separator": [("", ", ")],
    "list_last_separator": [("", ", and ")],
}

_ACTIONS: dict[str, tuple[str, str]] = {
    "GotoLocation": (
        "go to [{r.name | receptacleatlocation(r:receptacle, lend:location)}]",
        "#GotoLocation.feedback#",
    ),
    "OpenObject": ("open {r}", "#OpenObject.feedback#"),
    "CloseObject": ("close {r}", "#CloseObject.feedback#"),
    "PickupObject": ("take {o} from {r}", "#PickupObject.feedback#"),
    "inventory": ("inventory", "#inventory.feedback#"),
    "examineReceptacle": ("examine {r}", "#examineReceptacle.feedback#"),
    "examineObject": ("examine {o}", "#examineObject.feedback#"),
    "ToggleObject": ("use {o}", "#toggleObject.feedback#"),
    "HeatObject": ("heat {o} with {r}", "#heatObject.feedback#"),
    "CleanObject": ("clean {o} with {r}", "#cleanObject.feedback#"),
    "CoolObject": ("cool {o} with {r}", "#coolObject.feedback#"),
    "SliceObject": ("slice {co} with {ko}", "#sliceObject.feedback#"),
    "look": ("look", "#look.feedback#"),
}

_TASK = "Your task is to: "
_BLOCK = re.compile(r'grammar :: """(.*?)"""', re.DOTALL)
_ACTION = re.compile(r'action (\w+) \{\s*template :: "(.*?)";\s*feedback :: "(.*?)";', re.DOTALL)


def _dialect_rules(wording: Wording) -> dict[str, _Rule]:
    put_reply = wording.put_reply.format(o="{o.name}", r="{r.name}")
    return {
        "GotoLocation.feedback": [
            ("", f"You arrive at {{{wording.arrival}.name}}. #examineReceptacle.feedback#")
        ],
        "PutObject.feedback": [("", put_reply)],
    }


def _dialect_actions(wording: Wording) -> dict[str, tuple[str, str]]:
    actions = {"PutObject": (wording.put_command, "#PutObject.feedback#")}
    if wording.help_text is not None:
        actions["help"] = ("help", wording.help_text)
    return actions


def _parse_rules(grammar: str) -> dict[str, _Rule]:
    rules: dict[str, _Rule] = {}
    for block in _BLOCK.findall(grammar):
        for name, productions in json.loads(block).items():
            rules[name] = [(each.get("condition", ""), each["rhs"]) for each in productions]
    return rules


def read_wording(grammar: str, source: str) -> tuple[Wording, str]:
    """Dialect and task sentence (without ``Your task is to: ``) of a game file's grammar.

    Raises GameFileError when a sentence differs from both published dialects: such a game would be
    played with words that are not its own.
    """
    try:
        rules = _parse_rules(grammar)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise GameFileError(
            source, f"a grammar that cannot be read ({error})", "rules in JSON blocks"
        ) from error
    actions = {name: (template, reply) for name, template, reply in _ACTION.findall(grammar)}
    task = rules.get("task", [("", "")])[0][1]
    if not task.startswith(_TASK):
        raise GameFileError(source, f"the task {task!r}", f"a sentence that starts with {_TASK!r}")
    differing = [name for name, rule in _RULES.items() if rules.get(name) != rule]
    differing += [name for name, action in _ACTIONS.items() if actions.get(name) != action]
    if differing:
        raise GameFileError(
            source, f"unknown wording of {', '.join(differing)}", "the wording of ALFWorld's published games"
        )
    for wording in WORDINGS.values():
        has_rules = all(rules.get(name) == rule for name, rule in _dialect_rules(wording).items())
        expected = _dialect_actions(wording)
        found = {name: actions[name] for name in ("PutObject", "help") if name in actions}
        if has_rules and found == expected:
            return wording, task.removeprefix(_TASK)
    found_put = actions.get("PutObject", ("nothing", ""))[0]
    raise GameFileError(
        source,
        f"a mix of dialects ({found_put!r} to put)",
        f"{NEW.put_command!r} or {OLD.put_command!r} throughout",
    )


def write_grammar(wording: Wording, task: str) -> str:
    """Grammar text of a game file for the official engine."""
    rules = {**_RULES, **_dialect_rules(wording), "task": [("", _TASK + task)]}
    productions = {
        name: [{"condition": condition, "rhs": rhs} if condition else {"rhs": rhs} for condition, rhs in rule]
        for name, rule in rules.items()
    }
    blocks = [f'grammar :: """\n{json.dumps(productions, indent=1)}\n""";']
    for name, (template, reply) in {**_ACTIONS, **_dialect_actions(wording)}.items():
        blocks.append(f'action {name} {{\n    template :: "{template}";\n    feedback :: "{reply}";\n}}')
    return "\n\n".join(blocks) + "\n"
