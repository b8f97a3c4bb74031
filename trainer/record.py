"""What a run leaves behind while it goes on: metric rows, rollouts, evaluations, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.types import Trajectory
from rewards.base import RewardReport
from trainer.build import Parts
from trainer.checkpoint import TrainState, save_checkpoint
from trainer.checks import Alarms
from trainer.config import Config
from trainer.evaluate import evaluations
from trainer.logging import ALARM, EVAL, STEP, Loggers, MetricRow
from trainer.metrics import Played, step_metrics
from trainer.rng import rng_state
from trainer.rollout_log import RolloutLog
from trainer.run_folder import RunFolder
from trainer.types import UpdateStats
from trainer.update import Updater


class Record:
    """Writes the run folder. Every rank calls it at the same points; rank 0 alone writes."""

    def __init__(
        self, config: Config, parts: Parts, folder: RunFolder | None, loggers: Loggers | None
    ) -> None:
        self._config = config
        self._parts = parts
        self._folder = folder
        self._loggers = loggers
        self._rollouts = RolloutLog(folder.rollouts_path, parts.policy.tokenizer) if folder else None
        self.alarms = Alarms()

    def row(
        self, kind: str, phase: str, step: int, values: Mapping[str, Any], timing: Mapping[str, float]
    ) -> None:
        """One row in metrics.jsonl and every further logger."""
        if self._loggers is not None:
            self._loggers.log(MetricRow(kind, phase, step, values, timing))

    def step(
        self,
        phase: str,
        step: int,
        played: Sequence[Played],
        update: UpdateStats,
        further: Mapping[str, float],
        timing: Mapping[str, float],
    ) -> None:
        """Log one training step of all ranks: its metrics, every turn that was played, its alarms."""
        everything = [p for of_rank in self._parts.engine.gather(list(played)) for p in of_rank]
        if self._folder is None or self._rollouts is None:
            return
        values = {**step_metrics(everything), **update_values(update), **further}
        self.row(STEP, phase, step, values, timing)
        self._rollouts.write(
            phase,
            step,
            [p.group for p in everything],
            [p.report for p in everything],
            [p.advantages for p in everything],
        )
        for alarm in self.alarms.check(values):
            self.row(ALARM, phase, step, alarm.values(), {})

    def update(self, phase: str, step: int, update: UpdateStats, timing: Mapping[str, float]) -> None:
        """Log an update without rollouts."""
        self.row(STEP, phase, step, update_values(update), timing)

    def evaluate(self, phase: str, step: int) -> None:
        """Play the held-out tasks at every temperature of the config and log the results."""
        for result, trajectories in evaluations(self._config, self._parts):
            self.row(EVAL, phase, step, result.values(), {})
            if self._rollouts is not None:
                self._rollouts.write(f"eval-{phase}-{result.name}", step, *_unrewarded(trajectories))

    def evaluate_if_due(self, phase: str, step: int) -> None:
        """After every ``evaluation.every`` updates and after the last one."""
        every = self._config.evaluation.every
        if step == self._config.train.steps or (every and step % every == 0):
            self.evaluate(phase, step)

    def checkpoint(self, phase: str, step: int, updater: Updater) -> None:
        """Save everything that an exact continuation needs."""
        states = self._parts.engine.gather(rng_state())
        if self._folder is not None:
            memory = self._parts.memory.state_dict()
            self._folder.save_memory(phase, step, memory)
            save_checkpoint(
                self._folder.checkpoints,
                TrainState(
                    phase,
                    step,
                    extras={
                        "policy_version": self._parts.policy.version,
                        "skipped_in_row": updater.skipped_in_row,
                    },
                ),
                model=self._parts.policy.model,
                tokenizer=self._parts.policy.tokenizer,
                stateful=stateful(updater, self.alarms),
                rng=states,
                logs=self._folder.log_sizes(),
                memory=memory,
                keep=self._config.checkpoint.keep,
            )
        self._parts.engine.barrier()

    def checkpoint_if_due(self, phase: str, step: int, updater: Updater, last: int) -> None:
        """After every ``checkpoint.every`` updates and after the last one."""
        if step == last or step % self._config.checkpoint.every == 0:
            self.checkpoint(phase, step, updater)


def update_values(update: UpdateStats) -> dict[str, float]:
    """Numbers of an update by name."""
    return {
        "loss": update.loss,
        "grad_norm": update.grad_norm,
        "skipped": float(update.skipped),
        **update.metrics,
    }


def stateful(updater: Updater, alarms: Alarms) -> dict[str, Any]:
    """Objects whose state a checkpoint keeps, by name."""
    named: dict[str, Any] = {"optimizer": updater.optimizer, "alarms": alarms}
    if updater.scheduler is not None:
        named["scheduler"] = updater.scheduler
    if updater.reference is not None:
        named["reference"] = updater.reference
    return named


def _unrewarded(trajectories: Sequence[Trajectory]) -> tuple[list[Any], list[Any], list[Any]]:
    """Groups of one with empty reports, as evaluation rollouts are logged."""
    reports = [RewardReport(total=(None,), parts={}, status=("evaluation",)) for _ in trajectories]
    return [[t] for t in trajectories], reports, [None] * len(trajectories)
