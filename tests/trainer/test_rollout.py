"""Whole groups at once: determinism, seeds, failures with their owners, replacement, the stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.types import (
    Episode,
    GenerationRequest,
    Outcome,
    Policy,
    PromptTooLongError,
    Status,
    Trajectory,
    Turn,
)
from envs.base import AsyncTextEnv
from envs.types import Observation, StepResult, StopReason, Task
from memory.types import Retrieved
from tests.trainer.generation import policy, worst_gap
from trainer.rollout import RolloutError, rollout

Fault = Callable[[Task, int], None]


def no_fault(task: Task, number: int) -> None:
    pass


@dataclass
class EchoWorld:
    """Repeats each action, ends after ``length`` steps; ``fault(task, environment number)`` may raise."""

    fault: Fault = no_fault
    length: int = 3
    name: str = "echo"
    made: int = 0
    open: set[int] = field(default_factory=set)

    def tasks(self, split: str) -> Sequence[Task]:
        return [Task(f"echo-{i}", "echo", "echo", split, i, {"length": self.length + i}) for i in range(4)]

    def make_env(self) -> EchoEnv:
        self.made += 1
        self.open.add(self.made)
        return EchoEnv(self, self.made)


class EchoEnv:
    def __init__(self, world: EchoWorld, number: int) -> None:
        self.world, self.number = world, number

    def reset(self, task: Task) -> Observation:
        self.task, self.steps = task, 0
        return Observation(f"Say something about {task.task_id}.")

    def step(self, action: str) -> StepResult:
        self.steps += 1
        self.world.fault(self.task, self.number)
        done = self.steps >= self.task.payload["length"]
        return StepResult(Observation(f"You said {action[:5]!r}."), float(done), done, done)

    def gold(self, task: Task) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self.world.open.discard(self.number)


class Talker:
    """Answers the growing conversation until the world is done."""

    def __init__(self, max_new_tokens: int = 6) -> None:
        self.max_new_tokens = max_new_tokens

    async def run(
        self, task: Task, env: AsyncTextEnv, memory: Any, policy: Policy, episode: Episode
    ) -> Trajectory:
        observation = await env.reset(task)
        ids = policy.encode([{"role": "user", "content": observation.text}])
        memory.retrieve(observation.text)
        turns: list[Turn] = []
        while True:
            request = GenerationRequest(
                ids, "act", self.max_new_tokens, episode.seed + len(turns), episode.trajectory_id
            )
            got = await policy.generate(request)
            turns.append(
                Turn(
                    stage="act",
                    step=len(turns),
                    prompt_ids=ids,
                    completion_ids=got.token_ids,
                    logprobs=got.logprobs,
                    text=got.text,
                    policy_version=got.policy_version,
                    finish_reason=got.finish_reason,
                )
            )
            result = await env.step(got.text)
            if result.done:
                break
            reply = policy.encode_continuation([{"role": "user", "content": result.observation.text}])
            ids = ids + got.token_ids + reply
        return Trajectory(
            trajectory_id=episode.trajectory_id,
            task=task,
            turns=tuple(turns),
            steps=(),
            outcome=Outcome(1.0, True),
            stop_reason=StopReason.SUCCESS,
        )


class NoMemory:
    def retrieve(self, query: str, k: int = 3) -> tuple[Retrieved, ...]:
        return ()


class BrokenMemory:
    def retrieve(self, query: str, k: int = 3) -> tuple[Retrieved, ...]:
        raise KeyError("index lost")


def play(**changes: Any) -> list[list[Trajectory]]:
    world = changes.pop("world", None) or EchoWorld()
    options: dict[str, Any] = {
        "agent": Talker(),
        "world": world,
        "memory": NoMemory(),
        "policy": changes.pop("policy", None) or policy(max_batch=6),
        "group_size": 3,
        "seed": 5,
    } | changes
    return rollout(world.tasks("train"), **options)


def test_same_seed_gives_the_same_trajectories_bit_for_bit() -> None:
    subject = policy(max_batch=6)
    first = play(policy=subject)
    assert play(policy=subject) == first
    assert play() == first
    assert play(seed=6) != first


def test_groups_come_in_task_order_and_siblings_differ() -> None:
    world = EchoWorld()
    groups = play(world=world)
    assert [[t.task.task_id for t in g] for g in groups] == [[f"echo-{i}"] * 3 for i in range(4)]
    assert len({t.trajectory_id for g in groups for t in g}) == 12
    assert all(len({t.turns[0].completion_ids for t in g}) > 1 for g in groups)
    assert all(len(t.turns) == 3 + i for i, g in enumerate(groups) for t in g)
    assert not world.open


def test_logprobs_stay_exact_over_growing_conversations() -> None:
    subject = policy(max_batch=6)
    turns = [turn for g in play(policy=subject) for t in g for turn in t.turns]
    asked = [GenerationRequest(t.prompt_ids, t.stage, 6, 0) for t in turns]
    # A turn has the fields of a generation that the check reads: token ids, log-probs, allowed.
    got: Any = [_Completion(t.completion_ids, t.logprobs) for t in turns]
    assert worst_gap(subject.model, asked, got) < 1e-5


@dataclass(frozen=True)
class _Completion:
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    allowed: None = None


def test_a_task_listed_twice_is_two_groups_with_their_own_draws() -> None:
    world = EchoWorld()
    task = world.tasks("train")[0]
    one, two = rollout(
        [task, task],
        agent=Talker(),
        world=world,
        memory=NoMemory(),
        policy=policy(),
        group_size=2,
        seed=1,
    )
    assert {t.trajectory_id for t in one}.isdisjoint(t.trajectory_id for t in two)
    assert one[0].turns != two[0].turns


def said(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [turn.completion_ids for turn in trajectory.turns]


def crash_first(task: Task, number: int) -> None:
    if number == 2:
        raise ConnectionError("the simulator died")


def test_a_crashed_episode_is_replaced_once_with_another_seed() -> None:
    usual = play()
    world = EchoWorld(fault=crash_first)
    groups = play(world=world)
    again = groups[0][1]
    assert again.status is Status.OK
    assert again.trajectory_id != usual[0][1].trajectory_id
    failure = again.info["replaced"]
    assert (failure.owner, failure.kind, failure.message) == (
        "environment",
        "ConnectionError",
        "the simulator died",
    )
    assert "crash_first" in failure.traceback
    kept = [t for g in groups for t in g if t is not again]
    others = [t for g in usual for t in g if t is not usual[0][1]]
    assert [said(t) for t in kept] == [said(t) for t in others]
    assert not world.open


def crash_one_task(task: Task, number: int) -> None:
    if task.task_id == "echo-2":
        raise ConnectionError("the simulator died")


def test_an_episode_that_fails_twice_is_returned_as_failed() -> None:
    groups = play(world=EchoWorld(fault=crash_one_task), max_failed_share=0.5)
    assert [t.status for t in groups[2]] == [Status.FAILED] * 3
    assert all(t.stop_reason is StopReason.ERROR and not t.turns for t in groups[2])
    assert all(t.status is Status.OK for i in (0, 1, 3) for t in groups[i])


def test_too_many_failures_stop_the_run_with_their_kinds() -> None:
    with pytest.raises(RolloutError, match=r"6 of 15 .* 0\.25.*\n  6 x environment: ConnectionError"):
        play(world=EchoWorld(fault=crash_one_task))


class Stuck:
    """A policy whose model fails."""

    version, context_length, end_of_turn = 0, 10, 1

    def __init__(self, error: Exception) -> None:
        self.error = error

    def encode(self, messages: Any) -> tuple[int, ...]:
        return (1,)

    encode_continuation = encode

    async def generate(self, request: GenerationRequest) -> Any:
        raise self.error


class Buggy(Talker):
    async def run(self, *args: Any) -> Trajectory:
        raise IndexError("no such step")


@pytest.mark.parametrize(
    ("changes", "owner"),
    [
        ({"policy": Stuck(RuntimeError("out of memory"))}, "policy"),
        ({"policy": Stuck(PromptTooLongError("12 tokens"))}, "policy"),
        ({"memory": BrokenMemory()}, "memory"),
        ({"agent": Buggy()}, "agent"),
    ],
)
def test_failures_name_their_owner(changes: dict[str, Any], owner: str) -> None:
    groups = play(**changes, max_failed_share=1.0)
    assert {t.failure.owner for g in groups for t in g if t.failure} == {owner}


def test_an_error_inside_the_model_reaches_every_waiting_episode() -> None:
    subject = policy(max_batch=6)

    def broken(*_: Any) -> None:
        raise RuntimeError("device lost")

    handle = subject.model.get_input_embeddings().register_forward_pre_hook(broken)
    groups = play(policy=subject, max_failed_share=1.0)
    assert {t.failure.message for g in groups for t in g if t.failure} == {"device lost"}
    handle.remove()
    assert play(policy=subject) == play()


@pytest.mark.parametrize(("tasks", "size"), [(0, 2), (1, 0)])
def test_empty_rollouts_are_refused(tasks: int, size: int) -> None:
    world = EchoWorld()
    with pytest.raises(ValueError, match="expected at least one of each"):
        rollout(
            world.tasks("train")[:tasks],
            agent=Talker(),
            world=world,
            memory=NoMemory(),
            policy=policy(),
            group_size=size,
            seed=1,
        )
