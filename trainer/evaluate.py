"""Play tasks once each without training on them and count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from agents.types import Agent, Status, Trajectory
from envs.base import World
from envs.types import Task
from memory.types import MemoryView
from trainer.build import Parts
from trainer.config import Config
from trainer.engine import Engine
from trainer.generate.hf import HFPolicy
from trainer.rollout import hashed_seed, rollout
from trainer.statistics import wilson


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Success on one split at one temperature.

    ``by_kind`` maps a task kind to (won, played). ``success_rate`` is over all tasks,
    ``success_by_kind_mean`` the unweighted mean over kinds (the "Avg" of the papers); ``interval`` is
    the 95 % Wilson interval of the former. Failed episodes count in ``failed`` and nowhere else.
    """

    split: str
    temperature: float
    played: int
    won: int
    failed: int
    by_kind: dict[str, tuple[int, int]]
    steps_mean: float
    invalid_action_rate: float

    @property
    def success_rate(self) -> float:
        return self.won / max(self.played, 1)

    @property
    def success_by_kind_mean(self) -> float:
        return fmean(won / played for won, played in self.by_kind.values()) if self.by_kind else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.won, self.played)

    @property
    def name(self) -> str:
        return "greedy" if self.temperature == 0 else f"sampled_t{self.temperature:g}"

    def values(self) -> dict[str, Any]:
        """Plain values for metrics.jsonl."""
        low, high = self.interval
        return {
            "split": self.split,
            "temperature": self.temperature,
            "name": self.name,
            "success_rate": self.success_rate,
            "success_low": low,
            "success_high": high,
            "success_by_kind_mean": self.success_by_kind_mean,
            "by_kind": {kind: list(counts) for kind, counts in sorted(self.by_kind.items())},
            "played": self.played,
            "won": self.won,
            "failed": self.failed,
            "steps_mean": self.steps_mean,
            "invalid_action_rate": self.invalid_action_rate,
        }


def evaluations(config: Config, parts: Parts) -> Iterator[tuple[Evaluation, list[Trajectory]]]:
    """The evaluations that ``config.evaluation`` asks for, on the policy and memory as they are now.

    Their draws depend on the run's seed alone: a saved run evaluated again gives the same numbers.
    """
    wanted = config.evaluation
    for temperature in wanted.temperatures:
        yield evaluate(
            parts.world.tasks(wanted.split)[: wanted.tasks],
            agent=parts.agent,
            world=parts.world,
            memory=parts.memory.snapshot(),
            policy=parts.policy,
            temperature=temperature,
            seed=hashed_seed(config.run.seed, "evaluate"),
            engine=parts.engine,
        )


def evaluate(
    tasks: Sequence[Task],
    *,
    agent: Agent,
    world: World,
    memory: MemoryView,
    policy: HFPolicy,
    temperature: float,
    seed: int,
    engine: Engine,
) -> tuple[Evaluation, list[Trajectory]]:
    """Play each task once at ``temperature`` (0: greedy), shared out over the ranks.

    The result is the same whatever the number of ranks, since an episode's draws depend on its task
    and ``seed`` alone. Trajectories come back in task order, on every rank.
    """
    if not tasks:
        raise ValueError("evaluation: found 0 tasks, expected at least 1; check evaluation.split and tasks")
    mine = tasks[engine.rank :: engine.world_size]
    with policy.sampling_at(temperature):
        groups = rollout(
            mine, agent=agent, world=world, memory=memory, policy=policy, group_size=1, seed=seed
        )
    by_task = {group[0].task.task_id: group[0] for of_rank in engine.gather(groups) for group in of_rank}
    played = [by_task[task.task_id] for task in tasks]
    return summarise(played, tasks[0].split, temperature), played


def summarise(trajectories: Sequence[Trajectory], split: str, temperature: float) -> Evaluation:
    """Counts over finished trajectories."""
    usable = [t for t in trajectories if t.status is Status.OK]
    by_kind: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for trajectory in usable:
        won, played = by_kind[trajectory.task.kind]
        by_kind[trajectory.task.kind] = (won + trajectory.outcome.success, played + 1)
    actions = [step for trajectory in usable for step in trajectory.steps]
    return Evaluation(
        split=split,
        temperature=temperature,
        played=len(usable),
        won=sum(t.outcome.success for t in usable),
        failed=len(trajectories) - len(usable),
        by_kind=dict(by_kind),
        steps_mean=fmean(len(t.steps) for t in usable) if usable else 0.0,
        invalid_action_rate=sum(not step.valid for step in actions) / max(len(actions), 1),
    )
