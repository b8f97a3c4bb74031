"""The engine's texts and rules, on one small kitchen whose every fact is written down here."""

from __future__ import annotations

import pytest

from envs.household.engine import HouseholdState
from envs.household.game import Facts, Game, GameFacts, Goal, entity_names
from envs.household.wording import NEW, OLD, Wording


def _kitchen() -> dict[str, list[tuple[str, ...]]]:
    return {
        "atlocation": [("agent1", "loc_bar_0")],
        "receptacletype": [
            ("fridge_bar_1", "fridgetype"),
            ("countertop_bar_1", "countertoptype"),
            ("sink_bar_1_bar_sinkbasin", "sinkbasintype"),
            ("drawer_bar_1", "drawertype"),
            ("drawer_bar_2", "drawertype"),
        ],
        "receptacleatlocation": [
            ("fridge_bar_1", "loc_bar_1"),
            ("countertop_bar_1", "loc_bar_2"),
            ("sink_bar_1_bar_sinkbasin", "loc_bar_3"),
            ("drawer_bar_1", "loc_bar_4"),
            ("drawer_bar_2", "loc_bar_4"),
        ],
        "openable": [("fridge_bar_1",), ("drawer_bar_1",)],
        "objecttype": [
            ("apple_bar_1", "appletype"),
            ("apple_bar_2", "appletype"),
            ("knife_bar_1", "knifetype"),
            ("mug_bar_1", "mugtype"),
        ],
        "inreceptacle": [
            ("apple_bar_1", "countertop_bar_1"),
            ("apple_bar_2", "countertop_bar_1"),
            ("knife_bar_1", "countertop_bar_1"),
            ("mug_bar_1", "fridge_bar_1"),
        ],
        "objectatlocation": [
            ("apple_bar_1", "loc_bar_2"),
            ("apple_bar_2", "loc_bar_2"),
            ("knife_bar_1", "loc_bar_2"),
            ("mug_bar_1", "loc_bar_1"),
        ],
        "pickupable": [("apple_bar_1",), ("apple_bar_2",), ("knife_bar_1",), ("mug_bar_1",)],
        "cleanable": [("apple_bar_1",), ("apple_bar_2",)],
        "coolable": [("apple_bar_1",), ("apple_bar_2",)],
        "sliceable": [("apple_bar_1",), ("apple_bar_2",)],
        "isreceptacleobject": [("mug_bar_1",)],
        "cancontain": [
            ("fridgetype", "appletype"),
            ("fridgetype", "mugtype"),
            ("countertoptype", "knifetype"),
            ("drawertype", "knifetype"),
        ],
    }


def _state(goal: Goal | None = None, wording: Wording = NEW, facts: Facts | None = None) -> HouseholdState:
    goal = goal or Goal("apple", "fridge", ("isclean",))
    return HouseholdState(Game(GameFacts("put a clean apple in fridge.", wording, goal, facts or _kitchen())))


def _play(state: HouseholdState, *commands: str) -> list[str | None]:
    return [state.step(command) for command in commands]


def test_entities_are_numbered_downwards_in_the_order_of_their_ids() -> None:
    names = entity_names(["apple_bar_1", "apple_bar_2", "sink_bar_1_bar_sinkbasin", "sink_bar_2"])
    assert names == {
        "apple_bar_1": "apple 2",
        "apple_bar_2": "apple 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "sink_bar_2": "sink 1",
    }


def test_first_observation_states_the_room_and_the_task() -> None:
    assert _state().intro() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, "
        "you see a countertop 1, a drawer 2, a drawer 1, a fridge 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a clean apple in fridge."
    )


def test_look_before_the_first_move_sees_nothing() -> None:
    expected = "You are in the middle of a room. Looking quickly around you, you see nothing."
    assert _state().step("look") == expected


def test_winning_episode_reads_like_alfworld() -> None:
    state = _state()
    replies = _play(
        state,
        "go to countertop 1",
        "take apple 2 from countertop 1",
        "go to sinkbasin 1",
        "clean apple 2 with sinkbasin 1",
        "inventory",
        "examine apple 2",
        "go to fridge 1",
        "open fridge 1",
    )
    assert replies == [
        "You arrive at countertop 1. On the countertop 1, you see a apple 2, a apple 1, and a knife 1.",
        "You pick up the apple 2 from the countertop 1.",
        "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing.",
        "You clean the apple 2 using the sinkbasin 1.",
        "You are carrying: a apple 2.",
        "This is a clean apple 2.",
        "You arrive at fridge 1. The fridge 1 is closed.",
        "You open the fridge 1. The fridge 1 is open. In it, you see a mug 1.",
    ]
    assert not state.won
    assert state.step("move apple 2 to fridge 1") == "You move the apple 2 to the fridge 1."
    assert state.won
    assert state.step("close fridge 1") == "You close the fridge 1."


def test_old_dialect_puts_in_on_arrives_at_locations_and_has_no_help() -> None:
    state = _state(wording=OLD)
    assert state.step("help") is None
    assert state.step("go to fridge 1") == "You arrive at loc 4. The fridge 1 is closed."
    _play(state, "open fridge 1", "take mug 1 from fridge 1")
    assert state.step("put mug 1 in/on fridge 1") == "You put the mug 1 in/on the fridge 1."
    assert state.step("take mug 1 from fridge 1") is not None
    assert state.step("move mug 1 to fridge 1") is None


@pytest.mark.parametrize(
    "command",
    [
        "Go to countertop 1",
        "go  to countertop 1",
        "go to fridge 1",
        "go to fridge 2",
        "open fridge 1 now",
        "close fridge 1",
        "take mug 1 from fridge 1",
        "examine mug 1",
        "",
    ],
)
def test_what_is_not_literally_admissible_changes_nothing(command: str) -> None:
    state = _state()
    state.step("go to fridge 1")
    before = state.admissible
    assert state.step(command) is None
    assert state.admissible == before
    assert command not in before


def test_outer_blanks_do_not_matter() -> None:
    assert _state().step("  look\n") is not None


def test_admissible_commands_at_an_open_receptacle() -> None:
    state = _state()
    _play(state, "go to fridge 1", "open fridge 1")
    assert state.admissible == (
        "close fridge 1",
        "examine fridge 1",
        "go to countertop 1",
        "go to drawer 1",
        "go to drawer 2",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
        "take mug 1 from fridge 1",
    )


def test_receptacles_that_share_a_place_are_faced_together() -> None:
    state = _state()
    state.step("go to drawer 1")
    assert state.step("look") == "You are facing the drawer 2, and drawer 1. Next to it, you see nothing."
    # Only one of the two can be opened in this kitchen, and neither can be gone to from here.
    assert [each for each in state.admissible if "drawer" in each] == [
        "examine drawer 1",
        "examine drawer 2",
        "open drawer 2",
    ]


def test_an_object_moved_between_receptacles_of_one_place_is_seen_next_to_it() -> None:
    state = _state()
    _play(state, "go to countertop 1", "take knife 1 from countertop 1", "go to drawer 1")
    _play(state, "move knife 1 to drawer 1", "take knife 1 from drawer 1", "open drawer 2")
    _play(state, "move knife 1 to drawer 2")
    expected = "You are facing the drawer 2, and drawer 1. Next to it, you see a knife 1."
    assert state.step("look") == expected


def test_slicing_needs_a_knife_in_hand_and_the_object_at_the_place() -> None:
    state = _state()
    _play(state, "go to countertop 1")
    assert not any(each.startswith("slice") for each in state.admissible)
    _play(state, "take knife 1 from countertop 1")
    assert state.step("slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
    _play(state, "move knife 1 to countertop 1", "take apple 1 from countertop 1")
    assert state.step("examine apple 1") == "This is a sliced apple 1."


def test_receptacle_objects_are_always_normal() -> None:
    state = _state()
    _play(state, "go to fridge 1", "open fridge 1", "take mug 1 from fridge 1")
    assert state.step("examine mug 1") == "This is a normal mug 1. In it, you see nothing."


def test_an_object_in_two_receptacles_must_be_taken_from_each() -> None:
    facts = _kitchen()
    facts["inreceptacle"].append(("mug_bar_1", "countertop_bar_1"))
    state = _state(facts=facts)
    _play(state, "go to countertop 1", "take mug 1 from countertop 1", "go to fridge 1")
    assert (
        state.step("open fridge 1") == "You open the fridge 1. The fridge 1 is open. In it, you see a mug 1."
    )


def test_two_objects_win_only_in_the_same_receptacle() -> None:
    facts = _kitchen()
    facts["cancontain"].append(("drawertype", "appletype"))
    state = _state(Goal("apple", "drawer", count=2), facts=facts)
    _play(state, "go to countertop 1", "take apple 1 from countertop 1", "go to drawer 1")
    _play(state, "move apple 1 to drawer 1", "open drawer 2", "go to countertop 1")
    _play(state, "take apple 2 from countertop 1", "go to drawer 1", "move apple 2 to drawer 2")
    assert not state.won
    _play(state, "take apple 2 from drawer 2", "move apple 2 to drawer 1")
    assert state.won


def test_light_goal_needs_the_used_lamp_and_the_object_at_its_place() -> None:
    facts = _kitchen()
    facts["objecttype"].append(("desklamp_bar_1", "desklamptype"))
    facts["inreceptacle"].append(("desklamp_bar_1", "drawer_bar_2"))
    facts["toggleable"] = [("desklamp_bar_1",)]
    state = _state(Goal("apple", lamp_type="desklamp"), facts=facts)
    _play(state, "go to drawer 1")
    assert state.step("use desklamp 1") == "You turn on the desklamp 1."
    _play(state, "go to countertop 1", "take apple 1 from countertop 1")
    assert not state.won
    state.step("go to drawer 1")
    assert state.won
