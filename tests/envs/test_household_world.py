"""Generated households: every task can be won, splits keep apart, the same seed gives the same world."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from envs.base import TextEnv, World
from envs.household import GameDataError, HouseholdExpert, HouseholdWorld
from envs.household.engine import NOTHING_HAPPENS
from envs.household.generate import Settings, draw_layout, is_held_out
from envs.household.vocabulary import OBJECTS, ROOMS, TASK_KINDS, household_sentences, likelihood
from envs.household.world import HouseholdEnv, game_of
from envs.types import Task

SPLITS = ("train", "valid_seen", "valid_unseen")


def _play_expert(env: HouseholdEnv, task: Task, limit: int = 120) -> tuple[bool, int]:
    observation = env.reset(task)
    expert = HouseholdExpert(env)
    for step in range(1, limit + 1):
        command = expert.next_command()
        assert command in observation.admissible
        result = env.step(command)
        observation = result.observation
        if result.done:
            return result.success, step
    return False, limit


def _mean_expert_steps(world: HouseholdWorld, tasks: int = 60) -> float:
    env = world.make_env()
    played = [_play_expert(env, task) for task in world.tasks("train")[:tasks]]
    assert all(won for won, _ in played)
    return sum(steps for _, steps in played) / tasks


def test_world_and_env_satisfy_the_interface() -> None:
    world = HouseholdWorld(n_train=6)
    assert isinstance(world, World)
    assert isinstance(world.make_env(), TextEnv)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(
    "options", [{}, {"n_receptacles": 30, "n_objects": 40, "closed": 0.5, "wording": "old"}]
)
def test_gold_and_searching_expert_win_every_kind(split: str, options: dict[str, object]) -> None:
    world = HouseholdWorld(n_train=48, n_valid=48, **options)  # type: ignore[arg-type]
    env = world.make_env()
    tasks = world.tasks(split)
    assert Counter(task.kind for task in tasks) == dict.fromkeys(TASK_KINDS, 8)
    for task in tasks:
        commands = env.gold(task)
        observation = env.reset(task)
        for count, command in enumerate(commands, start=1):
            assert command in observation.admissible
            result = env.step(command)
            observation = result.observation
            assert result.success == result.done == (count == len(commands))
        assert result.reward == 1.0
        won, steps = _play_expert(env, task)
        assert won
        assert steps >= len(commands)


def test_experts_recover_from_anywhere() -> None:
    world = HouseholdWorld(n_train=30)
    env, rng = world.make_env(), random.Random(0)
    for task in world.tasks("train"):
        for knowledge in ("seen", "full"):
            observation = env.reset(task)
            for _ in range(25):
                observation = env.step(rng.choice(observation.admissible)).observation
            expert = HouseholdExpert(env, knowledge=knowledge)  # type: ignore[arg-type]
            for _ in range(100):
                if env.state.won:
                    break
                assert env.step(expert.next_command()).valid
            assert env.state.won


def test_searching_expert_uses_only_what_it_has_seen() -> None:
    """Two homes that differ only where the player has not looked get the same commands."""
    world = HouseholdWorld(n_train=60, task_kinds=["pick_and_place_simple"])
    env = world.make_env()
    for task in world.tasks("train"):
        env.reset(task)
        first = HouseholdExpert(env).next_command()
        state = env.state
        # Move every object somewhere else, unseen.
        state.contents = state.contents[1:] + state.contents[:1]
        assert HouseholdExpert(env).next_command() == first


def test_randomness_varies_the_search_and_the_seed_fixes_it() -> None:
    world = HouseholdWorld(n_train=12, n_receptacles=25)
    env = world.make_env()

    def commands(seed: int) -> list[str]:
        first = []
        for task in world.tasks("train"):
            env.reset(task)
            first.append(HouseholdExpert(env, seed, randomness=2.0).next_command())
        return first

    assert commands(1) == commands(1)
    assert commands(1) != commands(2)


def test_same_seed_same_games_other_seed_other_games() -> None:
    def intros(seed: int) -> list[str]:
        world = HouseholdWorld(n_train=24, seed=seed)
        return [world.make_env().reset(task).text for task in world.tasks("train")]

    assert intros(5) == intros(5)
    assert not set(intros(5)) & set(intros(6))


def test_no_task_repeats_and_none_is_won_at_the_start() -> None:
    world = HouseholdWorld(n_train=300)
    env = world.make_env()
    seen = set()
    for task in world.tasks("train"):
        env.reset(task)
        assert not env.state.won
        game = env.state.game
        seen.add((game.task, game.receptacles, game.contents, game.objects))
    assert len(seen) == 300


def test_unseen_layouts_never_occur_in_train_and_seen_ones_do() -> None:
    world = HouseholdWorld(n_train=600, n_valid=120)

    def layouts(split: str) -> set[tuple[str, ...]]:
        return {game_of(task).receptacles for task in world.tasks(split)}

    train = layouts("train")
    assert layouts("valid_seen") <= train
    assert not layouts("valid_unseen") & train
    for task in world.tasks("valid_unseen"):
        assert is_held_out(task.payload["room"], game_of(task).receptacle_types)


def test_objects_lie_where_the_vocabulary_says() -> None:
    world = HouseholdWorld(n_train=300)
    for task in world.tasks("train"):
        game = game_of(task)
        for receptacle, inside in enumerate(game.contents):
            for entity in inside:
                assert likelihood(game.object_types[entity], game.receptacle_types[receptacle]) >= 0.5


def test_settings_change_the_difficulty() -> None:
    easy = _mean_expert_steps(HouseholdWorld(n_receptacles=8, closed=0.0, spread=0.3, habit=0.0))
    usual = _mean_expert_steps(HouseholdWorld())
    hard = _mean_expert_steps(HouseholdWorld(n_receptacles=30, spread=3.0))
    assert easy < usual < hard


def test_households_have_the_size_asked_for() -> None:
    for room, given in ROOMS.items():
        sizes = [len(draw_layout(room, seed, False, 20).receptacles) for seed in range(30)]
        assert min(sizes) >= 16 and max(sizes) <= 24
        assert set(given.always) <= set(draw_layout(room, 0, True, 20).receptacles)


def test_steps_report_what_happened() -> None:
    world = HouseholdWorld(n_train=6)
    env = world.make_env()
    task = world.tasks("train")[0]
    first = env.reset(task)
    assert first.info == {"goal": env.state.game.task, "kind": task.kind}
    refused = env.step("dance")
    assert (refused.valid, refused.reward, refused.done) == (False, 0.0, False)
    assert refused.observation.text == NOTHING_HAPPENS
    assert refused.observation.admissible == first.admissible
    assert env.step("look").valid
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("look")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_kinds": []}, "expected some of"),
        ({"task_kinds": ["pick_up"]}, "expected some of"),
        ({"n_households": 2}, "at least 4"),
        ({"n_receptacles": 3}, "at least 7"),
        ({"n_objects": 1}, "at least 3"),
        ({"closed": 1.5}, "a share"),
        ({"spread": 0}, "above 0"),
        ({"habit": -1}, "0 or more"),
        ({"wording": "pirate"}, "new, old"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HouseholdWorld(**options)  # type: ignore[arg-type]


def test_unknown_split_and_too_small_homes_are_refused() -> None:
    with pytest.raises(ValueError, match="train, valid_seen, valid_unseen"):
        HouseholdWorld().tasks("test")
    with pytest.raises(GameDataError, match="raise n_receptacles"):
        for room in ROOMS:
            for unseen in (True, False):
                draw_layout(room, 0, unseen, 0)


def test_unknown_knowledge_is_refused() -> None:
    with pytest.raises(ValueError, match="'seen' or 'full'"):
        HouseholdExpert(HouseholdEnv(), knowledge="some")  # type: ignore[arg-type]


def test_vocabulary_is_consistent() -> None:
    known = {place for room in ROOMS.values() for place in (*room.always, *room.also)}
    for each in OBJECTS.values():
        assert each.rooms and set(each.rooms) <= set(ROOMS)
        assert set(each.places) <= known
        for room in each.rooms:
            placeable = {*ROOMS[room].always, *ROOMS[room].also}
            assert any(each.places.get(place) for place in placeable), (each.name, room)
    words = " ".join(household_sentences())
    assert all(f" {word} " in words for word in (*OBJECTS, *known))


def test_settings_survive_a_payload() -> None:
    settings = Settings(n_receptacles=20, wording="old")
    assert Settings(**settings.payload()) == settings  # type: ignore[arg-type]
