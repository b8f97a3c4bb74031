"""ALFWorld's objects and receptacles, and where a sensible person would look for what.

The weights are rounded shares of where objects lie in ALFWorld's published games; weight 0 marks
a receptacle that may hold the object but where it is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

TASK_KINDS = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)

KIND_PROPERTY = {
    "pick_clean_then_place_in_recep": "isclean",
    "pick_heat_then_place_in_recep": "ishot",
    "pick_cool_then_place_in_recep": "iscool",
}

KIND_SENTENCES = {
    "pick_and_place_simple": ("put a {o} in {r}.", "put some {o} on {r}."),
    "look_at_obj_in_light": ("look at {o} under the {r}.", "examine the {o} with the {r}."),
    "pick_clean_then_place_in_recep": ("put a clean {o} in {r}.", "clean some {o} and put it in {r}."),
    "pick_heat_then_place_in_recep": ("put a hot {o} in {r}.", "heat some {o} and put it in {r}."),
    "pick_cool_then_place_in_recep": ("put a cool {o} in {r}.", "cool some {o} and put it in {r}."),
    "pick_two_obj_and_place": ("put two {o} in {r}.", "find two {o} and put them in {r}."),
}

KIND_ROOMS = {
    "pick_and_place_simple": ("kitchen", "bathroom", "bedroom", "livingroom"),
    "look_at_obj_in_light": ("bedroom", "livingroom"),
    "pick_clean_then_place_in_recep": ("kitchen", "bathroom"),
    "pick_heat_then_place_in_recep": ("kitchen",),
    "pick_cool_then_place_in_recep": ("kitchen",),
    "pick_two_obj_and_place": ("kitchen", "bathroom", "bedroom", "livingroom"),
}

LAMP = "desklamp"
LAMP_PLACES = {"sidetable": 4.0, "desk": 3.0, "dresser": 2.0, "shelf": 1.0, "coffeetable": 0.5}
OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})


@dataclass(frozen=True, slots=True)
class Room:
    """Receptacles that every room of this sort has, and weights of what else it may have."""

    always: tuple[str, ...]
    also: Mapping[str, float]


ROOMS = {
    "kitchen": Room(
        ("countertop", "fridge", "microwave", "sinkbasin", "cabinet", "garbagecan"),
        {
            "cabinet": 6, "drawer": 4, "stoveburner": 3, "countertop": 2, "diningtable": 1.5,
            "shelf": 1.5, "coffeemachine": 1.5, "toaster": 0.7, "sidetable": 0.4,
        },
    ),
    "bathroom": Room(
        ("sinkbasin", "toilet", "garbagecan", "countertop", "cabinet"),
        {
            "cabinet": 4, "drawer": 3, "shelf": 1.5, "toiletpaperhanger": 1.5, "towelholder": 1,
            "handtowelholder": 1, "bathtubbasin": 1, "cart": 0.5, "sidetable": 0.5, "sinkbasin": 0.5,
        },
    ),
    "bedroom": Room(
        ("bed", "desk", "drawer", "sidetable", "garbagecan"),
        {
            "drawer": 6, "shelf": 4, "dresser": 1.5, "sidetable": 1, "laundryhamper": 0.7,
            "safe": 0.5, "armchair": 0.7, "desk": 0.5, "cabinet": 1, "bed": 0.3,
        },
    ),
    "livingroom": Room(
        ("sofa", "coffeetable", "sidetable", "armchair", "garbagecan"),
        {
            "drawer": 4, "shelf": 3, "diningtable": 1, "dresser": 1, "tvstand": 1, "cabinet": 1.5,
            "safe": 0.5, "ottoman": 0.5, "sofa": 0.5, "armchair": 0.7, "desk": 0.7, "sidetable": 1,
        },
    ),
}  # fmt: skip

_SITTING = "bedroom livingroom"
_WET = "kitchen bathroom"
# name | rooms | abilities: clean heat cool slice bowl (can hold others) | receptacle=weight ...
_OBJECTS = f"""
alarmclock | bedroom | | desk=34 shelf=22 sidetable=19 dresser=17 diningtable=7 countertop=1
apple | kitchen | clean heat cool slice | fridge=25 countertop=24 diningtable=14 garbagecan=13 microwave=13 sinkbasin=9 sidetable=2
baseballbat | bedroom | | bed=9 diningtable=0 sidetable=1
basketball | bedroom | | bed=3 desk=2 dresser=3 diningtable=0 sidetable=2
book | {_SITTING} | | bed=38 desk=14 drawer=10 dresser=6 sidetable=4 coffeetable=6 sofa=4 shelf=3 diningtable=5 armchair=2 cabinet=4 ottoman=1 countertop=0
bowl | kitchen {_SITTING} | clean cool bowl | cabinet=30 fridge=18 countertop=18 diningtable=14 desk=6 shelf=6 sinkbasin=3 microwave=2 dresser=2 coffeetable=2 sidetable=1
box | livingroom | bowl | diningtable=23 sofa=22 coffeetable=20 shelf=8 sidetable=7 desk=6 cabinet=5 dresser=4 armchair=3 ottoman=1
bread | kitchen | heat cool slice | countertop=56 diningtable=30 fridge=13 sidetable=1 garbagecan=0 microwave=0
butterknife | kitchen | clean | countertop=59 diningtable=26 drawer=8 sinkbasin=6 sidetable=1
cd | bedroom | | drawer=28 desk=21 dresser=13 sidetable=12 garbagecan=8 shelf=7 cabinet=2 safe=2 diningtable=0 countertop=0
candle | bathroom | | countertop=28 toilet=28 cabinet=13 drawer=12 shelf=7 sidetable=5 cart=3 coffeetable=0 diningtable=0 dresser=0
cellphone | {_SITTING} | | drawer=21 bed=20 desk=12 dresser=8 sidetable=8 shelf=6 armchair=3 sofa=3 coffeetable=4 safe=1 diningtable=5 ottoman=1 countertop=0
cloth | bathroom | clean | bathtubbasin=29 cabinet=22 countertop=16 drawer=15 sinkbasin=8 shelf=5 toilet=3 cart=2 garbagecan=0 sidetable=0 dresser=0 desk=0 armchair=0 laundryhamper=0 diningtable=0
creditcard | {_SITTING} | | drawer=25 shelf=14 sidetable=12 desk=9 dresser=8 sofa=6 armchair=6 coffeetable=5 safe=1 diningtable=4 ottoman=1 countertop=0
cup | kitchen | clean heat cool bowl | cabinet=23 fridge=21 countertop=21 diningtable=14 sinkbasin=10 microwave=7 shelf=2 sidetable=2
dishsponge | {_WET} | clean | countertop=25 cabinet=23 drawer=21 diningtable=12 sinkbasin=8 garbagecan=5 shelf=4 bathtubbasin=2 toilet=1 cart=1 sidetable=0
egg | kitchen | clean heat cool slice | fridge=25 countertop=24 sinkbasin=13 garbagecan=13 microwave=12 diningtable=11 sidetable=1
fork | kitchen | clean | countertop=44 diningtable=23 drawer=22 sinkbasin=9 sidetable=1
glassbottle | kitchen | | cabinet=31 countertop=29 diningtable=12 sinkbasin=9 fridge=7 shelf=4 microwave=0
handtowel | bathroom | | handtowelholder=95 countertop=4 bathtubbasin=0 cabinet=0 cart=0 drawer=0 garbagecan=0 shelf=1 sidetable=0 sinkbasin=0 toilet=0
kettle | kitchen | clean | stoveburner=41 countertop=26 cabinet=24 diningtable=7 sinkbasin=2 shelf=1 sidetable=0
keychain | {_SITTING} | | drawer=23 sidetable=15 desk=12 shelf=12 dresser=10 coffeetable=7 armchair=5 sofa=4 safe=4 diningtable=5 ottoman=1 countertop=0
knife | kitchen | clean | countertop=50 diningtable=24 drawer=20 sinkbasin=5 sidetable=1
ladle | kitchen | clean | countertop=42 cabinet=24 drawer=18 diningtable=14 sinkbasin=2
laptop | {_SITTING} | | bed=47 desk=12 sofa=10 diningtable=9 coffeetable=8 dresser=5 armchair=3 sidetable=3 ottoman=1 countertop=0
lettuce | kitchen | clean cool slice | countertop=42 diningtable=28 fridge=24 sinkbasin=5 sidetable=1 garbagecan=1
mug | kitchen bedroom | clean heat cool bowl | countertop=24 coffeemachine=14 cabinet=14 fridge=12 diningtable=10 microwave=6 desk=6 sinkbasin=5 shelf=4 sidetable=3 dresser=2
newspaper | livingroom | | sofa=20 coffeetable=17 diningtable=16 sidetable=14 shelf=11 dresser=8 armchair=7 drawer=2 garbagecan=2 ottoman=1 cabinet=0
pan | kitchen | clean cool bowl | stoveburner=53 countertop=32 cabinet=7 diningtable=4 fridge=4 sinkbasin=1 sidetable=0
pen | bedroom | | desk=22 drawer=18 dresser=14 sidetable=13 shelf=13 garbagecan=2 coffeetable=3 diningtable=0 countertop=0
pencil | bedroom | | drawer=20 desk=20 sidetable=16 shelf=14 dresser=10 garbagecan=5 coffeetable=2 diningtable=0 countertop=0
peppershaker | kitchen | | cabinet=33 countertop=30 diningtable=16 drawer=15 shelf=4 sidetable=2
pillow | {_SITTING} | | bed=69 sofa=24 armchair=7 ottoman=1
plate | kitchen | clean heat cool bowl | cabinet=37 countertop=27 diningtable=18 fridge=9 shelf=3 sinkbasin=2 microwave=1 sidetable=1 coffeetable=0 dresser=0
plunger | bathroom | | cabinet=5 cart=5
pot | kitchen | clean cool bowl | stoveburner=74 countertop=14 fridge=4 diningtable=4 cabinet=3 sinkbasin=1 shelf=0 sidetable=0
potato | kitchen | clean heat cool slice | countertop=29 fridge=26 diningtable=16 sinkbasin=11 microwave=10 garbagecan=7 sidetable=1
remotecontrol | livingroom | | coffeetable=20 sofa=16 sidetable=13 diningtable=9 drawer=8 armchair=8 dresser=8 desk=4 shelf=3 ottoman=1 countertop=0
saltshaker | kitchen | | cabinet=31 countertop=31 diningtable=17 drawer=15 shelf=4 sidetable=2
soapbar | bathroom | clean | countertop=21 toilet=16 sinkbasin=15 cabinet=12 bathtubbasin=11 drawer=11 garbagecan=7 shelf=4 sidetable=2 cart=2
soapbottle | {_WET} | | countertop=32 cabinet=28 diningtable=10 garbagecan=10 toilet=6 shelf=5 drawer=2 sidetable=1 cart=1
spatula | kitchen | clean | countertop=45 diningtable=24 drawer=21 sinkbasin=9 sidetable=1
spoon | kitchen | clean | countertop=38 drawer=28 diningtable=21 sinkbasin=12 sidetable=2
spraybottle | bathroom | | countertop=32 toilet=23 cabinet=19 garbagecan=10 shelf=6 cart=3 sidetable=2 drawer=1 dresser=0 diningtable=0
statue | livingroom | | shelf=29 coffeetable=15 diningtable=13 sidetable=12 dresser=7 desk=2 safe=1 countertop=0
tennisracket | bedroom | | bed=5 desk=1 dresser=3 sidetable=1 diningtable=0
tissuebox | livingroom | | shelf=18 coffeetable=14 drawer=13 sidetable=12 diningtable=12 desk=8 tvstand=3 cabinet=3 dresser=2 garbagecan=0 countertop=0 toilet=0 cart=0
toiletpaper | bathroom | | toilet=24 countertop=22 cabinet=12 toiletpaperhanger=12 drawer=11 garbagecan=9 shelf=6 cart=2 dresser=0 sidetable=1
tomato | kitchen | clean heat cool slice | fridge=33 countertop=30 diningtable=19 garbagecan=9 sinkbasin=7 sidetable=2 microwave=0
towel | bathroom | | towelholder=98
vase | livingroom | | shelf=35 cabinet=17 coffeetable=8 diningtable=7 dresser=6 sidetable=5 desk=1 safe=1 countertop=0
watch | {_SITTING} | | drawer=22 coffeetable=21 sidetable=16 diningtable=12 dresser=11 shelf=7 desk=3 safe=1
wateringcan | livingroom | | coffeetable=55 shelf=37 sidetable=8 cabinet=0 desk=0 diningtable=0 drawer=0 dresser=0
winebottle | kitchen | | countertop=36 cabinet=25 diningtable=24 garbagecan=9 shelf=3 fridge=1 sidetable=1
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class ObjectType:
    """A sort of object: rooms it is kept in, what can be done with it, weights of where it lies."""

    name: str
    rooms: tuple[str, ...]
    abilities: frozenset[str]
    places: Mapping[str, float]


def _parse(line: str) -> ObjectType:
    name, rooms, abilities, places = (part.strip() for part in line.split("|"))
    weights = {place: float(weight) for place, weight in (each.split("=") for each in places.split())}
    return ObjectType(name, tuple(rooms.split()), frozenset(abilities.split()), weights)


OBJECTS = {each.name: each for each in map(_parse, _OBJECTS.strip().splitlines())}

ABILITY_PREDICATES = {
    "clean": "cleanable",
    "heat": "heatable",
    "cool": "coolable",
    "slice": "sliceable",
    "bowl": "isreceptacleobject",
}
PROPERTY_ABILITY = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}

_OTHER_PLACES = ("toaster", "tvstand", "laundryhamper", "safe", "cart", "ottoman", "bed", "stoveburner")
_LEGAL_BUT_UNLIKELY = 0.3
_UNHEARD_OF = 0.02


def likelihood(object_type: str, receptacle_type: str) -> float:
    """How likely an object of a type lies in receptacles of a type: a weight, more is likelier, never 0."""
    if object_type.endswith("lamp"):
        weight = LAMP_PLACES.get(receptacle_type)
    else:
        known = OBJECTS.get(object_type)
        weight = known.places.get(receptacle_type) if known else None
    return _UNHEARD_OF if weight is None else max(weight, _LEGAL_BUT_UNLIKELY)


def household_sentences() -> Iterator[str]:
    """Sentences with every word of households, official or generated, for training a tokenizer.

    Goals of all kinds and both wordings of commands and replies, in a fixed order.
    """
    receptacles = sorted({place for each in OBJECTS.values() for place in each.places} | set(_OTHER_PLACES))
    for receptacle in receptacles:
        for number in range(1, 11):
            name = f"{receptacle} {number}"
            yield f"go to {name}\nYou arrive at {name}. On the {name}, you see nothing."
            yield f"You arrive at loc {number}. The {name} is closed."
            yield f"open {name}\nYou open the {name}. The {name} is open. In it, you see a"
            yield f"close {name}\nYou close the {name}."
            yield f"You are facing the {name}. Next to it, you see nothing."
    for object_type in (*OBJECTS.values(), ObjectType(LAMP, (), frozenset(), LAMP_PLACES)):
        yield from _object_sentences(object_type)


def _object_sentences(object_type: ObjectType) -> Iterator[str]:
    name = object_type.name
    for sentences in KIND_SENTENCES.values():
        for receptacle in object_type.places:
            for sentence in sentences:
                yield f"Your task is to: {sentence.format(o=name, r=receptacle)}"
    for number, receptacle in enumerate(object_type.places, start=1):
        item, place = f"{name} {number}", f"{receptacle} {number}"
        yield f"On the {place}, you see a {item}, a {name} 2, and a {name} 1."
        yield f"take {item} from {place}\nYou pick up the {item} from the {place}."
        yield f"move {item} to {place}\nYou move the {item} to the {place}."
        yield f"put {item} in/on {place}\nYou put the {item} in/on the {place}."
    for verb, appliance in (("clean", "sinkbasin"), ("heat", "microwave"), ("cool", "fridge")):
        if verb in object_type.abilities:
            yield f"{verb} {name} 1 with {appliance} 1\nYou {verb} the {name} 1 using the {appliance} 1."
    yield f"examine {name} 1\nThere's nothing special about {name} 1.\nThis is a normal {name} 1."
    yield f"use {name} 1\nYou turn on the {name} 1."
    yield f"inventory\nYou are carrying: a {name} 1.\nYou are not carrying anything."
    yield f"This is a hot and clean {name} 1.\nThis is a cold {name} 1.\nNothing happens."
