"""Playing one household game: commands in, the official engine's sentences out.

Oddities of the official engine that are kept, because agents see them: taking an object records
that it is *not* in that receptacle, and only recorded absences are seen "next to" a place (`look`);
an object may start in several receptacles at once; only a held object can be examined, since the
published rules misspell the condition for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envs.household.game import STATE_PROPERTIES, Game

NOTHING_HAPPENS = "Nothing happens."
_KNIVES = ("knife", "butterknife")
_CLEANERS = ("sink", "sinkbasin")


class Action(NamedTuple):
    """An admissible action: verb, object and receptacle (-1 where it has none)."""

    verb: str
    object: int = -1
    receptacle: int = -1


class HouseholdState:
    """Live state of a game.

    ``seen`` holds the receptacles whose contents the player has been shown, ``opened`` those that
    are open, ``contents`` the objects of each receptacle in printing order.
    """

    def __init__(self, game: Game) -> None:
        self.game = game
        self.location = game.start
        self.held = -1
        self.opened = list(game.opened)
        self.contents = list(game.contents)
        self.properties = {name: set(game.properties[name]) for name in STATE_PROPERTIES}
        self.seen: set[int] = set()
        self._object_locations = list(game.object_locations)
        self._absent: set[tuple[int, int]] = set()
        self._local: dict[str, Action] | None = None
        self._admissible: tuple[str, ...] | None = None

    def intro(self) -> str:
        """First observation: welcome, the receptacles around, the task."""
        game = self.game
        if game.receptacles_at[self.location]:
            around = self._look()
        else:
            names = [f"a {game.receptacles[r]}" for r, place in enumerate(game.place) if place >= 0]
            around = self._middle_of_room(names)
        return f"-= Welcome to TextWorld, ALFRED! =-\n\n{around}\n\nYour task is to: {game.task}"

    @property
    def admissible(self) -> tuple[str, ...]:
        """Commands that would do something now, sorted."""
        if self._admissible is None:
            commands = [*self.game.go_from[self.location], *self.local_actions]
            commands.sort()
            self._admissible = tuple(commands)
        return self._admissible

    @property
    def local_actions(self) -> dict[str, Action]:
        """Admissible commands other than ``go to`` and what they mean."""
        if self._local is None:
            self._local = self._find_local_actions()
        return self._local

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        goal, game = self.game.goal, self.game
        if goal.lamp_type:
            used = self.properties["istoggled"] & game.goal_lamps
            return self.held in game.goal_objects and any(
                lamp in used for r in game.receptacles_at[self.location] for lamp in self.contents[r]
            )
        for receptacle in game.goal_receptacles:
            inside = game.goal_objects.intersection(self.contents[receptacle])
            for name in goal.properties:
                inside = inside & self.properties[name]
            if len(inside) >= goal.count:
                return True
        return False

    def step(self, command: str) -> str | None:
        """Play ``command`` and return the reply; None when it is not admissible (nothing changes)."""
        command = command.strip()
        action = self.local_actions.get(command)
        if action is None:
            receptacle = self.game.go_commands.get(command, -1)
            if receptacle < 0 or self.game.place[receptacle] == self.location:
                return None
            self.location = self.game.place[receptacle]
            reply = self._arrive(receptacle)
        else:
            reply = self._act(action)
        return reply

    def is_open(self, receptacle: int) -> bool:
        """Whether the contents can be seen and reached."""
        return self.opened[receptacle] or not self.game.openable[receptacle]

    # -- admissible actions -------------------------------------------------------------------

    def _find_local_actions(self) -> dict[str, Action]:
        game, held = self.game, self.held
        found = {"look": Action("look"), "inventory": Action("inventory")}
        if game.wording.help_text is not None:
            found["help"] = Action("help")
        for receptacle in game.receptacles_at[self.location]:
            self._add_receptacle_actions(found, receptacle)
        if held >= 0:
            found[f"examine {game.objects[held]}"] = Action("examine", held)
            if game.object_types[held] in _KNIVES:
                for entity in game.sliceable:
                    if self.location in self._object_locations[entity]:
                        command = f"slice {game.objects[entity]} with {game.objects[held]}"
                        found[command] = Action("slice", entity)
        return found

    def _add_receptacle_actions(self, found: dict[str, Action], receptacle: int) -> None:
        game, name = self.game, self.game.receptacles[receptacle]
        found[f"examine {name}"] = Action("examine", -1, receptacle)
        if game.openable[receptacle]:
            verb = "close" if self.opened[receptacle] else "open"
            found[f"{verb} {name}"] = Action(verb, -1, receptacle)
        inside = self.contents[receptacle]
        reachable = self.is_open(receptacle)
        for entity in inside:
            if reachable and self.held < 0 and game.pickupable[entity]:
                found[f"take {game.objects[entity]} from {name}"] = Action("take", entity, receptacle)
            if game.toggleable[entity]:
                found[f"use {game.objects[entity]}"] = Action("use", entity, receptacle)
        if self.held >= 0:
            self._add_held_actions(found, receptacle, reachable)

    def _add_held_actions(self, found: dict[str, Action], receptacle: int, reachable: bool) -> None:
        game, held = self.game, self.held
        item, name, kind = game.objects[held], game.receptacles[receptacle], game.receptacle_types[receptacle]
        if reachable and game.object_types[held] in game.accepts[receptacle]:
            found[game.wording.put_command.format(o=item, r=name)] = Action("put", held, receptacle)
        if kind in _CLEANERS and game.cleanable[held]:
            found[f"clean {item} with {name}"] = Action("clean", held, receptacle)
        if kind == "microwave" and game.heatable[held]:
            found[f"heat {item} with {name}"] = Action("heat", held, receptacle)
        if kind == "fridge" and game.coolable[held]:
            found[f"cool {item} with {name}"] = Action("cool", held, receptacle)

    # -- effects and replies ------------------------------------------------------------------

    def _changed(self) -> None:
        self._local = self._admissible = None

    def _arrive(self, receptacle: int) -> str:
        self._changed()
        game = self.game
        by_receptacle = game.wording.arrival == "r"
        name = game.receptacles[receptacle] if by_receptacle else game.locations[self.location]
        return f"You arrive at {name}. {self._describe(receptacle)}"

    def _act(self, action: Action) -> str:
        game, (verb, entity, receptacle) = self.game, action
        if verb == "look":
            return self._look()
        if verb == "inventory":
            held = f"a {game.objects[self.held]}" if self.held >= 0 else ""
            return f"You are carrying: {held}." if held else "You are not carrying anything."
        if verb == "help":
            return str(game.wording.help_text).lstrip()
        if verb == "examine":
            return self._describe(receptacle) if receptacle >= 0 else self._describe_object(entity)
        self._changed()
        if verb in ("open", "close"):
            return self._open_or_close(receptacle, opened=verb == "open")
        if verb == "take":
            return self._take(entity, receptacle)
        if verb == "put":
            return self._put(entity, receptacle)
        return self._change_property(verb, entity, receptacle)

    def _open_or_close(self, receptacle: int, opened: bool) -> str:
        self.opened[receptacle] = opened
        name = self.game.receptacles[receptacle]
        return f"You open the {name}. {self._describe(receptacle)}" if opened else f"You close the {name}."

    def _take(self, entity: int, receptacle: int) -> str:
        self.held = entity
        self.contents[receptacle] = tuple(each for each in self.contents[receptacle] if each != entity)
        self._object_locations[entity] -= {self.location}
        self._absent.add((entity, receptacle))
        return f"You pick up the {self.game.objects[entity]} from the {self.game.receptacles[receptacle]}."

    def _put(self, entity: int, receptacle: int) -> str:
        self.held = -1
        self.contents[receptacle] = tuple(sorted({*self.contents[receptacle], entity}))
        self._object_locations[entity] |= {self.location}
        self._absent.discard((entity, receptacle))
        game = self.game
        return game.wording.put_reply.format(o=game.objects[entity], r=game.receptacles[receptacle])

    def _change_property(self, verb: str, entity: int, receptacle: int) -> str:
        game, properties, item = self.game, self.properties, self.game.objects[entity]
        if verb == "use":
            properties["istoggled"].add(entity)
            return f"You turn on the {item}."
        if verb == "slice":
            properties["issliced"].add(entity)
            return f"You sliced the {item} with the {game.objects[self.held]}."
        if verb == "clean":
            properties["isclean"].add(entity)
        else:
            gained, lost = ("ishot", "iscool") if verb == "heat" else ("iscool", "ishot")
            properties[gained].add(entity)
            properties[lost].discard(entity)
        return f"You {verb} the {item} using the {game.receptacles[receptacle]}."

    # -- descriptions -------------------------------------------------------------------------

    def _describe(self, receptacle: int) -> str:
        game, name = self.game, self.game.receptacles[receptacle]
        if game.openable[receptacle] and not self.opened[receptacle]:
            return f"The {name} is closed."
        self.seen.add(receptacle)
        listed = _listing([f"a {game.objects[entity]}" for entity in self.contents[receptacle]])
        if game.openable[receptacle]:
            return f"The {name} is open. In it, you see {listed}."
        return f"On the {name}, you see {listed}."

    def _describe_object(self, entity: int) -> str:
        game, name = self.game, self.game.objects[entity]
        if game.holds_objects[entity]:
            inside = _listing([f"a {game.objects[each]}" for each in game.inside_object[entity]])
            return f"This is a normal {name}. In it, you see {inside}."
        clean, hot, cool, is_sliced, on = (entity in self.properties[each] for each in STATE_PROPERTIES)
        sliced = "sliced " if is_sliced else ""
        if hot or cool:
            warmth = "hot" if hot else "cool"
            if clean:
                return f"This is a {warmth} and clean {sliced}{name}."
            return f"This is a {'cold' if cool and not hot and not is_sliced else warmth} {sliced}{name}."
        if clean or (is_sliced and not on):
            return f"This is a {'clean ' if clean else ''}{sliced}{name}."
        return f"This {name} is on." if on else f"There's nothing special about {name}."

    def _look(self) -> str:
        game = self.game
        here = game.receptacles_at[self.location]
        if not here:
            return self._middle_of_room([])
        facing = _listing([game.receptacles[r] for r in here])
        near = [
            f"a {game.objects[entity]}"
            for entity, receptacle in sorted(self._absent)
            if game.place[receptacle] == self.location and self.location in self._object_locations[entity]
        ]
        return f"You are facing the {facing}. Next to it, you see {_listing(near)}."

    @staticmethod
    def _middle_of_room(names: Sequence[str]) -> str:
        return f"You are in the middle of a room. Looking quickly around you, you see {_listing(names)}."


def _listing(names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])}, and {names[-1]}"
