"""New households and tasks, drawn from a seed."""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache

from envs.household.errors import GameDataError
from envs.household.game import GameFacts, Goal
from envs.household.vocabulary import (
    ABILITY_PREDICATES,
    KIND_PROPERTY,
    KIND_SENTENCES,
    LAMP,
    LAMP_PLACES,
    OBJECTS,
    OPENABLE,
    PROPERTY_ABILITY,
    ROOMS,
)
from envs.household.wording import WORDINGS

_UNSEEN_SHARE = 4
_TRIES = 400


@dataclass(frozen=True, slots=True)
class Settings:
    """How large and how hard generated households are.

    ``n_receptacles`` is the mean (a household has 20 % more or less), ``n_objects`` the number of
    objects in a task. ``closed`` is the share of drawers, cabinets etc. that start closed.
    ``spread`` flattens where objects lie: 1 as in ALFWorld, towards 0 always at the likeliest place,
    above 1 harder to guess. ``habit`` is how much a household has its own places for things (0: none),
    which memory of that household can learn.
    """

    n_receptacles: int = 12
    n_objects: int = 14
    closed: float = 1.0
    spread: float = 1.0
    habit: float = 0.7
    wording: str = "new"

    def __post_init__(self) -> None:
        _require(self.n_receptacles >= 7, "n_receptacles", self.n_receptacles, "at least 7")
        _require(self.n_objects >= 3, "n_objects", self.n_objects, "at least 3")
        _require(0 <= self.closed <= 1, "closed", self.closed, "a share in [0, 1]")
        _require(self.spread > 0, "spread", self.spread, "a number above 0")
        _require(self.habit >= 0, "habit", self.habit, "0 or more")
        _require(self.wording in WORDINGS, "wording", self.wording, f"one of {', '.join(WORDINGS)}")

    def payload(self) -> Mapping[str, object]:
        """As plain values for a task's payload."""
        return asdict(self)


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise ValueError(f"household setting {name}={value!r}: expected {expected}")


@dataclass(frozen=True, slots=True)
class Layout:
    """A household: its room and the types of its receptacles, in the order of their ids."""

    room: str
    seed: int
    receptacles: tuple[str, ...]


def is_held_out(room: str, receptacles: tuple[str, ...]) -> bool:
    """Whether a layout belongs to ``valid_unseen``. Depends on the layout alone, so train never has it."""
    signature = f"{room}:{','.join(sorted(receptacles))}"
    return zlib.crc32(signature.encode()) % _UNSEEN_SHARE == 0


@lru_cache(maxsize=4096)
def draw_layout(room: str, seed: int, unseen: bool, n_receptacles: int) -> Layout:
    """A household of ``room``, the same for the same arguments.

    Raises GameDataError when so few receptacles leave no layout for the split.
    """
    rng = random.Random(f"layout {room} {seed} {unseen} {n_receptacles}")
    given = ROOMS[room]
    for _ in range(_TRIES):
        size = max(len(given.always), round(n_receptacles * rng.uniform(0.8, 1.2)))
        extra = rng.choices(list(given.also), list(given.also.values()), k=size - len(given.always))
        receptacles = tuple(sorted((*given.always, *extra)))
        if is_held_out(room, receptacles) == unseen:
            return Layout(room, seed, receptacles)
    split = "valid_unseen" if unseen else "train"
    raise GameDataError(f"no {room} layout of {n_receptacles} receptacles for {split}; raise n_receptacles")


def generate_game(kind: str, layout: Layout, seed: int, settings: Settings) -> GameFacts:
    """A task of ``kind`` in ``layout``, never won from the start.

    The same arguments give the same game. Raises GameDataError when the room offers no such task.
    """
    rng = random.Random(f"task {kind} {layout.seed} {seed}")
    goal = _draw_goal(kind, layout, rng)
    placed = _place_objects(kind, goal, layout, settings, rng)
    sentence = rng.choice(KIND_SENTENCES[kind])
    task = sentence.format(o=goal.object_type, r=goal.lamp_type or goal.receptacle_type)
    facts = _facts(layout, placed, settings, rng)
    source = f"generated {kind} in {layout.room} {layout.seed}, seed {seed}"
    return GameFacts(task, WORDINGS[settings.wording], goal, facts, source)


def _draw_goal(kind: str, layout: Layout, rng: random.Random) -> Goal:
    types = sorted(set(layout.receptacles))
    here = [each for each in OBJECTS.values() if layout.room in each.rooms]
    if kind == "look_at_obj_in_light":
        lit = [each.name for each in here if any(each.places.get(t) for t in types)]
        return Goal(rng.choice(lit), lamp_type=LAMP)
    name = KIND_PROPERTY.get(kind)
    choices = [
        (each.name, target)
        for each in here
        if name is None or PROPERTY_ABILITY[name] in each.abilities
        for target in types
        if target in each.places and any(each.places.get(t) for t in types if t != target)
    ]
    if not choices:
        raise GameDataError(f"a {layout.room} offers no task of kind {kind}")
    # Types first, so that an object with many legal receptacles is not asked for more often.
    wanted = rng.choice(sorted({chosen for chosen, _ in choices}))
    target = rng.choice([place for chosen, place in choices if chosen == wanted])
    return Goal(wanted, target, (name,) if name else (), count=2 if kind == "pick_two_obj_and_place" else 1)


def _place_objects(
    kind: str, goal: Goal, layout: Layout, settings: Settings, rng: random.Random
) -> list[tuple[str, int]]:
    """(object type, receptacle index) of everything in the household."""
    barred = "" if goal.properties else goal.receptacle_type
    placed = [
        (goal.object_type, _draw_place(goal.object_type, layout, settings, rng, barred))
        for _ in range(goal.count + (rng.random() < 0.3))
    ]
    if goal.lamp_type:
        lit = [LAMP_PLACES.get(each, 0.0) for each in layout.receptacles]
        placed.append((LAMP, rng.choices(range(len(lit)), lit)[0]))
    fitting = [
        each.name
        for each in OBJECTS.values()
        if layout.room in each.rooms
        and each.name != goal.object_type
        and any(each.places.get(place) for place in layout.receptacles)
    ]
    counts: Counter[str] = Counter()
    while len(placed) < settings.n_objects and fitting:
        other = rng.choice(fitting)
        counts[other] += 1
        if counts[other] == 3:
            fitting.remove(other)
        placed.append((other, _draw_place(other, layout, settings, rng, "")))
    return placed


def _draw_place(name: str, layout: Layout, settings: Settings, rng: random.Random, barred: str) -> int:
    weights = [
        0.0 if kind == barred else weight
        for kind, weight in zip(layout.receptacles, _habits(name, layout, settings), strict=True)
    ]
    return rng.choices(range(len(weights)), weights)[0]


@lru_cache(maxsize=16384)
def _habits(name: str, layout: Layout, settings: Settings) -> tuple[float, ...]:
    """Weight of every receptacle of the household for an object type."""
    rng = random.Random(f"habit {name} {layout}")
    counts = Counter(layout.receptacles)
    places = OBJECTS[name].places
    weights = []
    for kind in layout.receptacles:
        share = places.get(kind, 0.0) / counts[kind]
        own = math.exp(settings.habit * rng.gauss(0, 1))
        weights.append((share * own) ** (1 / settings.spread) if share else 0.0)
    return tuple(weights)


_SPLIT_IDS = {"sinkbasin": "sink", "bathtubbasin": "bathtub"}


def _entity(kind: str, number: int) -> str:
    """An id that the official engine names ``kind N``; it makes basins out of sinks."""
    if kind in _SPLIT_IDS:
        return f"{_SPLIT_IDS[kind]}_bar_{number:02d}_bar_{kind}"
    return f"{kind}_bar_{number:02d}"


def _facts(
    layout: Layout, placed: list[tuple[str, int]], settings: Settings, rng: random.Random
) -> dict[str, list[tuple[str, ...]]]:
    facts: dict[str, list[tuple[str, ...]]] = {"atlocation": [("agent1", "loc_bar_00")]}
    numbers: Counter[str] = Counter()
    receptacles = []
    for index, kind in enumerate(layout.receptacles):
        numbers[kind] += 1
        entity = _entity(kind, numbers[kind])
        receptacles.append(entity)
        facts.setdefault("receptacletype", []).append((entity, f"{kind}type"))
        facts.setdefault("receptacleatlocation", []).append((entity, f"loc_bar_{index + 1:02d}"))
        if kind in OPENABLE:
            facts.setdefault("openable", []).append((entity,))
            if rng.random() >= settings.closed:
                facts.setdefault("opened", []).append((entity,))
    kinds = sorted({name for name, _ in placed})
    for kind in kinds:
        legal = OBJECTS[kind].places if kind in OBJECTS else {}
        for place in sorted(set(layout.receptacles) & set(legal)):
            facts.setdefault("cancontain", []).append((f"{place}type", f"{kind}type"))
    for name, receptacle in placed:
        numbers[name] += 1
        entity = _entity(name, numbers[name])
        facts.setdefault("objecttype", []).append((entity, f"{name}type"))
        facts.setdefault("inreceptacle", []).append((entity, receptacles[receptacle]))
        facts.setdefault("objectatlocation", []).append((entity, f"loc_bar_{receptacle + 1:02d}"))
        for predicate in _abilities(name):
            facts.setdefault(predicate, []).append((entity,))
    return facts


def _abilities(name: str) -> list[str]:
    if name == LAMP:
        return ["toggleable"]
    return ["pickupable", *(ABILITY_PREDICATES[each] for each in sorted(OBJECTS[name].abilities))]
