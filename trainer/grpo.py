"""THE loop: play groups, score them, credit their tokens, update the policy, update the memory."""

from __future__ import annotations

import time

from trainer.build import Parts
from trainer.config import Config
from trainer.memory_update import update_memory
from trainer.metrics import Played
from trainer.record import Record
from trainer.rollout import hashed_seed, rollout
from trainer.samples import train_samples
from trainer.scoring import score_groups
from trainer.tasks import tasks_of_step
from trainer.update import Updater


def grpo(config: Config, parts: Parts, updater: Updater, record: Record, done: int) -> None:
    """Train from update ``done`` to ``config.train.steps`` (GRPO, DeepSeekMath section 4.1).

    Every rank runs this with its own share of each step's tasks; a group stays on one rank, so that
    its statistics are whole. One step is one policy version: all its rollouts are on-policy.
    """
    train, engine, policy, memory = config.train, parts.engine, parts.policy, parts.memory
    tasks = parts.world.tasks(train.split)

    for step in range(done, train.steps):
        started = time.perf_counter()
        chosen = tasks_of_step(tasks, step, train.tasks_per_step, config.run.seed)

        groups = rollout(
            chosen[engine.rank :: engine.world_size],
            agent=parts.agent,
            world=parts.world,
            memory=memory.snapshot(),
            policy=policy,
            group_size=train.group_size,
            seed=hashed_seed(config.run.seed, "rollout", step),
            max_failed_share=train.max_failed_share,
        )
        played_s = time.perf_counter() - started

        reports = score_groups(parts.rewards, groups, train.max_failed_share)
        advantages = map(parts.estimator, groups, reports)
        played = [Played(*one) for one in zip(groups, reports, advantages, strict=True)]
        samples = [
            sample
            for p in played
            for sample in train_samples(p.group, p.advantages, kl_on_tied=train.kl_on_tied)
        ]
        update = updater.update(samples)
        policy.version += 1

        memory_counts = update_memory(
            memory,
            groups,
            distiller=parts.distiller,
            policy=policy,
            share=train.distill_share,
            step=step + 1,
            seed=hashed_seed(config.run.seed, "distil", step),
            engine=engine,
        )
        timing = {"rollout_seconds": played_s, "seconds": time.perf_counter() - started}
        record.step("grpo", step + 1, played, update, memory_counts, timing)
        record.evaluate_if_due("grpo", step + 1)
        record.checkpoint_if_due("grpo", step + 1, updater, last=train.steps)
