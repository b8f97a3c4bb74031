"""Plays groups of episodes: all at once, each with its own seed, failures masked and counted."""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from agents.types import (
    Agent,
    Episode,
    Failure,
    Generation,
    GenerationRequest,
    Message,
    Outcome,
    Policy,
    PromptTooLongError,
    Status,
    Trajectory,
)
from envs.base import AsyncTextEnv, InProcessEnv, TextEnv, World
from envs.types import Observation, StepResult, StopReason, Task
from memory.errors import UserError
from trainer.generate.rendezvous import Rendezvous


class RolloutError(RuntimeError):
    """Too many episodes failed to go on; the message lists the kinds."""


@runtime_checkable
class BatchingPolicy(Protocol):
    """A policy that decodes in this process, and so wants to know how many episodes are live."""

    rendezvous: Rendezvous

    def forget(self) -> None: ...


class _OwnedError(Exception):
    """Carries an exception out of an episode together with the part it came from."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


@dataclass(frozen=True, slots=True)
class _Plan:
    """One place in a group; attempt 1 replaces a failed attempt 0."""

    task: Task
    prefix: str
    sibling: int
    seed: int

    def episode(self, attempt: int) -> Episode:
        name = f"{self.prefix}/{self.sibling}" + (f"/retry{attempt}" if attempt else "")
        return Episode(name, hashed_seed(self.seed, name))


def rollout(
    tasks: Sequence[Task],
    *,
    agent: Agent,
    world: World,
    memory: Any,
    policy: Policy,
    group_size: int,
    seed: int,
    max_failed_share: float = 0.25,
) -> list[list[Trajectory]]:
    """Play every task ``group_size`` times; groups in the order of ``tasks``.

    All episodes run at once, on ``memory`` as a snapshot. An episode's seed is a hash of ``seed``,
    its task's id and its place in the group. An episode that raises is replaced once, by a run with
    another seed whose ``info["replaced"]`` holds the `Failure`; one that fails again is returned
    with status FAILED. RolloutError where more than ``max_failed_share`` of the attempts failed
    (`UserError` where every one of them failed by a mistake that the user can mend).
    """
    if not tasks or group_size < 1:
        raise ValueError(
            f"rollout got {len(tasks)} tasks and group_size {group_size}; expected at least one of each"
        )
    if isinstance(policy, BatchingPolicy):
        policy.forget()
    plans = _plans(tasks, group_size, seed)
    flat = asyncio.run(_play_all(plans, agent, world, memory, policy))
    _check_failures(flat, max_failed_share)
    return [flat[i : i + group_size] for i in range(0, len(flat), group_size)]


def generate_all(policy: Policy, requests: Sequence[GenerationRequest]) -> list[Generation]:
    """Completions of prompts that belong to no episode, in the order of ``requests``."""

    async def gather() -> list[Generation]:
        return list(await asyncio.gather(*(policy.generate(request) for request in requests)))

    return asyncio.run(gather())


def hashed_seed(*parts: object) -> int:
    """A 63-bit seed from the parts, the same on every machine and in every process."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _plans(tasks: Sequence[Task], group_size: int, seed: int) -> list[_Plan]:
    seen: Counter[str] = Counter()
    plans: list[_Plan] = []
    for task in tasks:
        again = seen[task.task_id]
        seen[task.task_id] += 1
        prefix = f"{task.task_id}@{seed}" + (f".{again}" if again else "")
        plans.extend(_Plan(task, prefix, sibling, seed) for sibling in range(group_size))
    return plans


async def _play_all(
    plans: Sequence[_Plan], agent: Agent, world: World, memory: Any, policy: Policy
) -> list[Trajectory]:
    episodes = (_play_with_retry(plan, agent, world, memory, policy) for plan in plans)
    return list(await asyncio.gather(*episodes))


async def _play_with_retry(
    plan: _Plan, agent: Agent, world: World, memory: Any, policy: Policy
) -> Trajectory:
    member: AbstractContextManager[None] = nullcontext()
    if isinstance(policy, BatchingPolicy):
        member = policy.rendezvous.episode()
    with member:
        first = await _play(plan.task, plan.episode(0), agent, world, memory, policy)
        if first.status is Status.OK:
            return first
        second = await _play(plan.task, plan.episode(1), agent, world, memory, policy)
        return replace(second, info={**second.info, "replaced": first.failure})


async def _play(
    task: Task, episode: Episode, agent: Agent, world: World, memory: Any, policy: Policy
) -> Trajectory:
    env = _OwnedEnv(world)
    try:
        trajectory = await agent.run(task, env, memory, _OwnedPolicy(policy), episode)
        env.close()
        return trajectory
    except Exception as error:
        failure = _failure(error, memory)
        env.abandon()
        return Trajectory(
            trajectory_id=episode.trajectory_id,
            task=task,
            turns=(),
            steps=(),
            outcome=Outcome(0.0, False),
            stop_reason=StopReason.ERROR,
            status=Status.FAILED,
            failure=failure,
        )


def _failure(error: Exception, memory: Any) -> Failure:
    """Name the owner by the wrapper the error passed through, else by the code that raised it."""
    text = "".join(traceback.format_exception(error))
    if isinstance(error, _OwnedError):
        cause = error.__cause__ or error
        return Failure(error.owner, type(cause).__name__, str(cause), text, isinstance(cause, UserError))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    in_memory = any(
        frame.f_locals.get("self") is memory or frame.f_globals.get("__name__", "").startswith("memory.")
        for frame in frames
    )
    # The trainer called the agent, so the agent's own code is what is left when no part is named.
    owner = "memory" if in_memory else "agent"
    if isinstance(error, PromptTooLongError):
        owner = "policy"
    return Failure(owner, type(error).__name__, str(error), text, isinstance(error, UserError))


def _check_failures(trajectories: Sequence[Trajectory], max_failed_share: float) -> None:
    failures = [t.failure for t in trajectories if t.failure is not None]
    replaced = [t.info["replaced"] for t in trajectories if t.info.get("replaced") is not None]
    failed = failures + replaced
    attempts = len(trajectories) + len(replaced)
    if len(failed) <= max_failed_share * attempts:
        return
    kinds = Counter((failure.owner, failure.kind, failure.message) for failure in failed)
    lines = [f"  {count} x {owner}: {kind}: {text}" for (owner, kind, text), count in kinds.most_common(10)]
    told = (
        f"{len(failed)} of {attempts} episodes failed, more than the allowed share {max_failed_share:g}:\n"
        + "\n".join(lines)
    )
    if all(failure.mendable for failure in failed):
        raise UserError(told)
    raise RolloutError(
        told + f"\nFix the cause or raise the share. The first one:\n{failed[0].traceback}"
    )


class _OwnedEnv:
    """An episode's environment, made when first used; its exceptions are the environment's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._env: TextEnv | None = None
        self._async: AsyncTextEnv | None = None

    async def reset(self, task: Task) -> Observation:
        try:
            if self._async is None:
                self._env = self._world.make_env()
                self._async = InProcessEnv(self._env)
            return await self._async.reset(task)
        except Exception as error:
            raise _OwnedError("environment") from error

    async def step(self, action: str) -> StepResult:
        if self._async is None:
            raise RuntimeError(f"the agent stepped {action!r} before reset(task)")
        try:
            return await self._async.step(action)
        except Exception as error:
            raise _OwnedError("environment") from error

    def close(self) -> None:
        if self._env is None:
            return
        try:
            self._env.close()
        except Exception as error:
            raise _OwnedError("environment") from error

    def abandon(self) -> None:
        """Close after a failure; that failure, not one of closing a broken world, is reported."""
        if self._env is None:
            return
        try:
            self._env.close()
        except Exception:
            traceback.print_exc()


class _OwnedPolicy:
    """The policy as an episode sees it; its exceptions are the policy's.

    PromptTooLongError passes through, because an agent may answer it by ending the episode.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.version = policy.version
        self.context_length = policy.context_length

    @property
    def end_of_turn(self) -> int:
        return self._policy.end_of_turn

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self._policy.encode(messages)

    def encode_continuation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self._policy.encode_continuation(messages)

    async def generate(self, request: GenerationRequest) -> Generation:
        try:
            return await self._policy.generate(request)
        except PromptTooLongError:
            raise
        except Exception as error:
            raise _OwnedError("policy") from error
