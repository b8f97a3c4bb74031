"""Shortest ways to win a household game from any state, over what is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from envs.household.engine import HouseholdState

Known = Callable[[int], bool]
"""Whether the contents of a receptacle are known."""

_TOOLS = {
    "isclean": ("clean", ("sinkbasin", "sink")),
    "ishot": ("heat", ("microwave",)),
    "iscool": ("cool", ("fridge",)),
}
_Source = tuple[int, int]
"""A wanted object and the receptacle that it can be taken from."""
_BEST = 8
"""So many cheapest first objects are combined with every second: costs add up but for shared places."""


class Route:
    """Commands of a plan while it is being built, with the place and the open receptacles they lead to."""

    def __init__(self, state: HouseholdState, known: Known) -> None:
        self.commands: list[str] = []
        self.location = state.location
        self._state, self._known = state, known
        self._opened: set[int] = set()

    def copy(self) -> Route:
        """An independent continuation."""
        other = Route(self._state, self._known)
        other.commands, other.location = self.commands.copy(), self.location
        other._opened = self._opened.copy()
        return other

    def go(self, receptacle: int) -> None:
        """Be where ``receptacle`` is."""
        game = self._state.game
        if game.place[receptacle] != self.location:
            self.commands.append(f"go to {game.receptacles[receptacle]}")
            self.location = game.place[receptacle]

    def reach(self, receptacle: int) -> None:
        """Be at ``receptacle`` with its contents in reach."""
        self.go(receptacle)
        state = self._state
        closed = state.game.openable[receptacle] and not (
            state.opened[receptacle] and self._known(receptacle)
        )
        if closed and receptacle not in self._opened:
            self.commands.append(f"open {state.game.receptacles[receptacle]}")
            self._opened.add(receptacle)

    def take(self, entity: int, receptacle: int) -> None:
        """Hold ``entity``, which lies in ``receptacle``."""
        self.reach(receptacle)
        game = self._state.game
        self.commands.append(f"take {game.objects[entity]} from {game.receptacles[receptacle]}")

    def put(self, entity: int, receptacle: int) -> None:
        """Put the held ``entity`` into ``receptacle``."""
        self.reach(receptacle)
        game = self._state.game
        self.commands.append(
            game.wording.put_command.format(o=game.objects[entity], r=game.receptacles[receptacle])
        )

    def treat(self, entity: int, prop: str, towards: int) -> bool:
        """Clean, heat or cool the held ``entity``, with the appliance nearest to here and ``towards``."""
        game = self._state.game
        if entity in self._state.properties[prop]:
            return True
        verb, kinds = _TOOLS[prop]
        able = {"isclean": game.cleanable, "ishot": game.heatable, "iscool": game.coolable}[prop]
        tools = [tool for kind in kinds for tool in game.receptacles_of(kind)]
        if not tools or not able[entity]:
            return False
        near = {self.location: 0, game.place[towards]: 1}
        tool = min(tools, key=lambda each: near.get(game.place[each], 2))
        self.go(tool)
        self.commands.append(f"{verb} {game.objects[entity]} with {game.receptacles[tool]}")
        return True


def everything(receptacle: int) -> bool:
    """Full knowledge."""
    return True


def plan(state: HouseholdState, known: Known = everything) -> list[str] | None:
    """Shortest commands that win from ``state``, or get closer as far as ``known`` allows.

    None when no wanted object is known. With full knowledge the plan wins.
    """
    find_routes = _light_routes if state.game.goal.lamp_type else _place_routes
    best = min(find_routes(state, known), key=lambda each: (each[0], len(each[1].commands)), default=None)
    return best[1].commands if best else None


def _sources(state: HouseholdState, known: Known) -> list[_Source]:
    """Every way to take a wanted object."""
    game = state.game
    return [
        (entity, receptacle)
        for receptacle, inside in enumerate(state.contents)
        if game.place[receptacle] >= 0 and known(receptacle)
        for entity in inside
        if entity in game.goal_objects and game.pickupable[entity]
    ]


def _empty_handed(state: HouseholdState, known: Known, sources: Iterable[_Source]) -> Iterator[Route]:
    """Routes that put down what is held: here, where a wanted object lies, or at the first fitting place."""
    if state.held < 0:
        yield Route(state, known)
        return
    game = state.game
    kind = game.object_types[state.held]
    fitting = [r for r, accepted in enumerate(game.accepts) if kind in accepted and game.place[r] >= 0]
    near = {state.location, *(game.place[receptacle] for _, receptacle in sources)}
    open_first = sorted(fitting, key=lambda r: not state.is_open(r))
    for receptacle in {*(r for r in fitting if game.place[r] in near), *open_first[:1]}:
        route = Route(state, known)
        route.put(state.held, receptacle)
        yield route


def _light_routes(state: HouseholdState, known: Known) -> Iterator[tuple[int, Route]]:
    game = state.game
    lamps = [
        (lamp, receptacle)
        for receptacle, inside in enumerate(state.contents)
        if game.place[receptacle] >= 0 and known(receptacle)
        for lamp in inside
        if lamp in game.goal_lamps
    ]
    for route in _holding_wanted(state, known):
        if not lamps:
            yield 1, route
        for lamp, receptacle in lamps:
            lit = route.copy()
            lit.go(receptacle)
            if lamp not in state.properties["istoggled"]:
                lit.commands.append(f"use {game.objects[lamp]}")
            yield 0, lit


def _holding_wanted(state: HouseholdState, known: Known) -> Iterator[Route]:
    if state.held in state.game.goal_objects:
        yield Route(state, known)
        return
    sources = _sources(state, known)
    for entity, receptacle in sources:
        for route in _empty_handed(state, known, [(entity, receptacle)]):
            route.take(entity, receptacle)
            yield route


def _place_routes(state: HouseholdState, known: Known) -> Iterator[tuple[int, Route]]:
    """(objects still missing afterwards, route) for every target receptacle."""
    game, goal = state.game, state.game.goal
    sources = _sources(state, known)
    targets = [r for r in game.goal_receptacles if goal.object_type in game.accepts[r]]
    done = {target: _done(state, target) if known(target) else set() for target in targets}
    most = max(map(len, done.values()), default=0)
    for target in targets:
        usable = [source for source in sources if source[0] not in done[target]]
        missing = goal.count - len(done[target])
        in_hand = state.held in game.goal_objects and state.held not in done[target]
        fill = _fill_from_hand if in_hand else _fill
        for placed, route in fill(state, known, target, usable, missing):
            # What only moves a lone object from one target to the next is no progress.
            if len(done[target]) + placed > most:
                yield missing - placed, route


def _done(state: HouseholdState, target: int) -> set[int]:
    """Objects in ``target`` that are as the goal wants them."""
    done = state.game.goal_objects.intersection(state.contents[target])
    for name in state.game.goal.properties:
        done = done & state.properties[name]
    return set(done)


def _fill_from_hand(
    state: HouseholdState, known: Known, target: int, usable: list[_Source], missing: int
) -> Iterator[tuple[int, Route]]:
    """Like `_fill`, beginning with the wanted object that is held."""
    route = Route(state, known)
    if _deliver(route, state, (state.held, -1), target):
        yield from _continued(route, state, target, _without(usable, state.held), missing)


def _fill(
    state: HouseholdState, known: Known, target: int, usable: list[_Source], missing: int
) -> Iterator[tuple[int, Route]]:
    """(objects placed, route) that bring up to ``missing`` objects into ``target``."""
    firsts: list[tuple[int, _Source, Route]] = []
    for source in usable:
        for route in _empty_handed(state, known, [source]):
            route.take(*source)
            if _deliver(route, state, source, target):
                firsts.append((len(route.commands), source, route))
    firsts.sort(key=lambda each: each[0])
    for _, source, route in firsts[:_BEST]:
        yield from _continued(route, state, target, _without(usable, source[0]), missing)


def _continued(
    route: Route, state: HouseholdState, target: int, usable: list[_Source], missing: int
) -> Iterator[tuple[int, Route]]:
    """``route``, which places one object, with each way to place a second where one is missing."""
    if missing < 2 or not usable:
        yield 1, route
        return
    for source in usable:
        longer = route.copy()
        longer.take(*source)
        if _deliver(longer, state, source, target):
            yield 2, longer


def _without(sources: list[_Source], entity: int) -> list[_Source]:
    return [source for source in sources if source[0] != entity]


def _deliver(route: Route, state: HouseholdState, source: _Source, target: int) -> bool:
    """Treat the object in hand, taken from ``source``, and put it into ``target``; False if it cannot be."""
    entity, taken_from = source
    if not all(route.treat(entity, name, target) for name in state.game.goal.properties):
        return False
    # Objects may lie in two receptacles at once, and then stay in the other.
    if taken_from == target or entity not in state.contents[target]:
        route.put(entity, target)
    return True
