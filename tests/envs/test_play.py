"""A person plays in the terminal, or watches the expert."""

from __future__ import annotations

from io import StringIO

import pytest

from envs.household import HouseholdWorld
from envs.play import play


@pytest.fixture
def world() -> HouseholdWorld:
    return HouseholdWorld(n_train=6, n_valid=6)


def test_gold_shows_a_won_episode(world: HouseholdWorld) -> None:
    out = StringIO()
    assert play(world, "valid_seen", 3, gold=True, stdout=out)
    assert "-= Welcome to TextWorld" in out.getvalue()
    assert out.getvalue().rstrip().endswith("You won.")
    for command in world.make_env().gold(world.tasks("valid_seen")[3]):
        assert f"\n> {command}\n" in out.getvalue()


def test_a_person_wins_by_typing_the_commands(world: HouseholdWorld) -> None:
    commands = world.make_env().gold(world.tasks("train")[1])
    out = StringIO()
    assert play(world, "train", 1, stdin=StringIO("\n".join(("?", "dance", *commands))), stdout=out)
    assert "\ngo to " in out.getvalue() and "Nothing happens." in out.getvalue()


@pytest.mark.parametrize("typed", ["quit\n", "look\nexit\n", ""])
def test_leaving_or_the_end_of_input_ends_the_episode(world: HouseholdWorld, typed: str) -> None:
    out = StringIO()
    assert not play(world, stdin=StringIO(typed), stdout=out)
    assert out.getvalue().rstrip().endswith("Not won.")


def test_unknown_task_index_is_refused(world: HouseholdWorld) -> None:
    with pytest.raises(IndexError, match="6 tasks in train"):
        play(world, index=6, gold=True, stdout=StringIO())
