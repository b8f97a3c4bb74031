"""One household game, indexed: entities as small integers in the order the official engine sorts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from envs.household.errors import GameFileError
from envs.household.wording import Wording

Facts = Mapping[str, Sequence[tuple[str, ...]]]
"""Predicate (lower case) to argument tuples (lower-case ids), as in the ``:init`` of a problem."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What wins the game.

    Placing: ``count`` objects of ``object_type``, each with every property, in one receptacle of
    ``receptacle_type``. Light (``lamp_type`` set): hold an object of ``object_type`` where a used
    lamp stands. Types are lower case without the suffix ``type``.
    """

    object_type: str
    receptacle_type: str = ""
    properties: tuple[str, ...] = ()
    count: int = 1
    lamp_type: str = ""


@dataclass(frozen=True, slots=True)
class GameFacts:
    """A game as read or generated, before indexing. ``task`` is the sentence of the goal."""

    task: str
    wording: Wording
    goal: Goal
    facts: Facts
    source: str = ""


def entity_names(ids: Iterable[str]) -> dict[str, str]:
    """Names of entities: ids sorted, numbered downwards per type, as ALFWorld's demangler does.

    >>> entity_names(["mug_bar_2", "mug_bar_1"])
    {'mug_bar_1': 'mug 2', 'mug_bar_2': 'mug 1'}
    """
    ordered = sorted(ids)
    kinds = {entity: _kind(entity) for entity in ordered}
    left = Counter(kind for kind in kinds.values() if kind)
    names = {}
    for entity, kind in kinds.items():
        names[entity] = f"{kind} {left[kind]}" if kind else f"{entity} "
        left[kind] -= 1
    return names


def _kind(entity: str) -> str:
    kind, bar, _ = entity.partition("_bar_")
    if not bar:
        return ""
    return kind + "basin" if "basin" in entity else kind


class Game:
    """Everything about a game that never changes, and its initial state.

    Receptacles, objects and locations are indices in the order of their sorted ids, which is the
    order of every list the engine prints.
    """

    def __init__(self, given: GameFacts) -> None:
        facts = given.facts
        self.source, self.task, self.goal, self.wording = given.source, given.task, given.goal, given.wording
        entities = {argument for rows in facts.values() for row in rows for argument in row}
        names = entity_names(entities)
        try:
            self._index_entities(facts, names)
            self._index_properties(facts)
            self._index_types(facts)
            self._index_start(facts)
        except KeyError as error:
            found = f"a fact about {error}, which is not such an entity"
            raise GameFileError(given.source, found, "objects in receptacles at locations") from error

    def _index_entities(self, facts: Facts, names: Mapping[str, str]) -> None:
        places = dict(_pairs(facts, "receptacleatlocation"))
        typed = dict(_pairs(facts, "receptacletype"))
        self.receptacle_ids = sorted(set(places) | set(typed))
        standing = {row[0] for rows in (facts.get(name, ()) for name in _OBJECT_PREDICATES) for row in rows}
        self.object_ids = sorted(standing - set(self.receptacle_ids))
        starts = [row[1] for row in facts.get("atlocation", ())]
        if len(starts) != 1:
            raise GameFileError(
                self.source, f"{len(starts)} places where the agent is", "exactly one atLocation fact"
            )
        locations = {*places.values(), *(row[1] for row in facts.get("objectatlocation", ())), *starts}
        self.location_ids = sorted(locations)
        self._receptacle = {entity: index for index, entity in enumerate(self.receptacle_ids)}
        self._object = {entity: index for index, entity in enumerate(self.object_ids)}
        self._location = {entity: index for index, entity in enumerate(self.location_ids)}
        self.receptacles = tuple(names[entity] for entity in self.receptacle_ids)
        self.objects = tuple(names[entity] for entity in self.object_ids)
        self.locations = tuple(names[entity] for entity in self.location_ids)
        self.start = self._location[starts[0]]
        self.place = tuple(self._location.get(places.get(entity, ""), -1) for entity in self.receptacle_ids)
        at: list[list[int]] = [[] for _ in self.location_ids]
        for receptacle, location in enumerate(self.place):
            if location >= 0:
                at[location].append(receptacle)
        self.receptacles_at = tuple(tuple(each) for each in at)

    def _index_properties(self, facts: Facts) -> None:
        def flags(predicate: str) -> tuple[bool, ...]:
            having = {row[0] for row in facts.get(predicate, ())}
            return tuple(entity in having for entity in self.object_ids)

        openable = {row[0] for row in facts.get("openable", ())}
        self.openable = tuple(entity in openable for entity in self.receptacle_ids)
        self.pickupable = flags("pickupable")
        self.cleanable, self.heatable, self.coolable = (
            flags("cleanable"),
            flags("heatable"),
            flags("coolable"),
        )
        self.toggleable = flags("toggleable")
        self.sliceable = tuple(i for i, having in enumerate(flags("sliceable")) if having)
        self.holds_objects = flags("isreceptacleobject")
        inner: list[list[int]] = [[] for _ in self.object_ids]
        for inside, outside in _pairs(facts, "inreceptacleobject"):
            if inside != outside:
                inner[self._object[outside]].append(self._object[inside])
        self.inside_object = tuple(tuple(sorted(each)) for each in inner)

    def _index_types(self, facts: Facts) -> None:
        object_types = {entity: _plain(kind) for entity, kind in _pairs(facts, "objecttype")}
        receptacle_types = {entity: _plain(kind) for entity, kind in _pairs(facts, "receptacletype")}
        self.object_types = tuple(object_types.get(entity, "") for entity in self.object_ids)
        self.receptacle_types = tuple(receptacle_types.get(entity, "") for entity in self.receptacle_ids)
        can_contain: dict[str, set[str]] = {}
        for receptacle, entity in _pairs(facts, "cancontain"):
            can_contain.setdefault(_plain(receptacle), set()).add(_plain(entity))
        self.accepts = tuple(can_contain.get(kind, set()) - {""} for kind in self.receptacle_types)
        goal = self.goal
        self.goal_objects = frozenset(self.objects_of(goal.object_type))
        self.goal_receptacles = (
            tuple(self.receptacles_of(goal.receptacle_type)) if goal.receptacle_type else ()
        )
        self.goal_lamps = frozenset(
            lamp for lamp in self.objects_of(goal.lamp_type) if goal.lamp_type and self.toggleable[lamp]
        )

    def _index_start(self, facts: Facts) -> None:
        contents: list[set[int]] = [set() for _ in self.receptacle_ids]
        for inside, receptacle in _pairs(facts, "inreceptacle"):
            contents[self._receptacle[receptacle]].add(self._object[inside])
        self.contents = tuple(tuple(sorted(each)) for each in contents)
        locations: list[set[int]] = [set() for _ in self.object_ids]
        for entity, location in _pairs(facts, "objectatlocation"):
            if entity in self._object:
                locations[self._object[entity]].add(self._location[location])
        self.object_locations = tuple(frozenset(each) for each in locations)
        opened = {row[0] for row in facts.get("opened", ())}
        self.opened = tuple(entity in opened for entity in self.receptacle_ids)
        self.properties = {
            name: frozenset(self._object[row[0]] for row in facts.get(name, ()) if row[0] in self._object)
            for name in STATE_PROPERTIES
        }

    def objects_of(self, kind: str) -> list[int]:
        """Indices of the objects of a type."""
        return [index for index, each in enumerate(self.object_types) if each == kind]

    def receptacles_of(self, kind: str) -> list[int]:
        """Indices of the receptacles of a type that can be reached."""
        return [i for i, each in enumerate(self.receptacle_types) if each == kind and self.place[i] >= 0]

    @cached_property
    def go_commands(self) -> dict[str, int]:
        """``go to ...`` command to receptacle."""
        return {f"go to {self.receptacles[r]}": r for r, place in enumerate(self.place) if place >= 0}

    @cached_property
    def go_from(self) -> tuple[tuple[str, ...], ...]:
        """Sorted ``go to`` commands that leave each location."""
        return tuple(
            tuple(sorted(command for command, r in self.go_commands.items() if self.place[r] != location))
            for location in range(len(self.location_ids))
        )


STATE_PROPERTIES = ("isclean", "ishot", "iscool", "issliced", "istoggled")
_OBJECT_PREDICATES = (
    "objecttype", "objectatlocation", "inreceptacle", "pickupable", "toggleable", "sliceable",
    "cleanable", "heatable", "coolable", "isreceptacleobject", "inreceptacleobject",
)  # fmt: skip


def _plain(kind: str) -> str:
    return kind.removesuffix("type")


def _pairs(facts: Facts, predicate: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in facts.get(predicate, ())]
