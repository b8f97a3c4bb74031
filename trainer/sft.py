"""Warm start: a teacher plays the agent's part, the policy learns to write what the teacher wrote."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agents.teacher import TaughtWorld, teacher_answer
from agents.types import GenerationRequest, Trajectory
from trainer.build import Parts
from trainer.config import Config, SFTConfig
from trainer.generate.scripted import ScriptedPolicy
from trainer.memory_update import update_memory
from trainer.record import Record
from trainer.rollout import hashed_seed, rollout
from trainer.samples import train_samples
from trainer.tasks import tasks_of_step
from trainer.types import GroupAdvantages, TrainSample
from trainer.update import Updater

DEMONSTRATIONS_AT_ONCE = 64
"""Between two rounds of this many the memory takes in what the last round taught."""


def demonstrate(config: Config, parts: Parts) -> list[Trajectory]:
    """Episodes of this rank in which the teacher answers every prompt; they also fill the memory."""
    assert config.sft is not None and parts.teacher is not None
    tasks = parts.world.tasks(config.train.split)
    world = TaughtWorld(parts.world, parts.teacher)
    expert = ScriptedPolicy(parts.policy.tokenizer, _answer)
    played: list[Trajectory] = []
    rounds = -(-config.sft.episodes // DEMONSTRATIONS_AT_ONCE)
    for index in range(rounds):
        chosen = tasks_of_step(tasks, index, DEMONSTRATIONS_AT_ONCE, config.run.seed)
        groups = rollout(
            chosen[parts.engine.rank :: parts.engine.world_size],
            agent=parts.agent,
            world=world,
            memory=parts.memory.snapshot(),
            policy=expert,
            group_size=1,
            seed=hashed_seed(config.run.seed, "demonstrate", index),
        )
        played += [group[0] for group in groups]
        update_memory(
            parts.memory,
            groups,
            distiller=parts.distiller,
            policy=parts.policy,
            share=config.train.distill_share,
            step=0,
            seed=hashed_seed(config.run.seed, "distil demonstrations", index),
            engine=parts.engine,
        )
    return played


def sft(
    config: Config,
    parts: Parts,
    updater: Updater,
    record: Record,
    demonstrations: Sequence[Trajectory],
    done: int,
) -> None:
    """Supervised updates ``done`` to ``config.sft.steps`` on demonstrations of won episodes."""
    assert config.sft is not None
    rows = [row for t in demonstrations if t.outcome.success for row in supervised_rows(t, config.sft)]
    tokens = config.sft.tokens_per_batch // parts.engine.world_size
    plan = batches(rows, config.sft.steps, tokens, config.run.seed)
    for step, batch in enumerate(itertools.islice(plan, done, None), start=done):
        started = time.perf_counter()
        update = updater.update(batch)
        record.update("sft", step + 1, update, {"seconds": time.perf_counter() - started})
        record.checkpoint_if_due("sft", step + 1, updater, last=config.sft.steps)


def supervised_rows(trajectory: Trajectory, config: SFTConfig) -> list[TrainSample]:
    """Rows with weight 1 on what the teacher wrote and ``observation_weight`` on the text around it."""
    ones = tuple(tuple(1.0 for _ in turn.completion_ids) for turn in trajectory.turns)
    rows = train_samples([trajectory], GroupAdvantages(tokens=(ones,), outcome=(1.0,), tied=False))
    if config.observation_weight == 0:
        return rows
    return [_with_observations(row, config.observation_weight) for row in rows]


def _with_observations(row: TrainSample, weight: float) -> TrainSample:
    # The first token has no prefix to be predicted from.
    mask = (0, *(1 for _ in row.loss_mask[1:]))
    advantages = tuple(
        a if written else weight for a, written in zip(row.advantages, row.loss_mask, strict=True)
    )
    return replace(row, loss_mask=mask, advantages=advantages)


def batches(rows: Sequence[TrainSample], steps: int, tokens: int, seed: int) -> Iterator[list[TrainSample]]:
    """``steps`` batches of about ``tokens`` tokens: every row once, in random order, before any again."""
    if not rows:
        raise ValueError("sft: no demonstration was won, so there is nothing to imitate; check the teacher")
    order: list[int] = []
    for epoch in itertools.count():
        todo = list(range(len(rows)))
        random.Random(f"{seed}:{epoch}").shuffle(todo)
        order += todo
        while sum(len(rows[i].input_ids) for i in order) >= tokens:
            if steps == 0:
                return
            batch, total = [], 0
            while total < tokens:
                batch.append(rows[order.pop(0)])
                total += len(batch[-1].input_ids)
            yield batch
            steps -= 1


def _answer(request: GenerationRequest, prompt: str) -> str:
    return teacher_answer(request.stage, prompt)
