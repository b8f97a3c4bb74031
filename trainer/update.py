"""One update of the policy from a set of rows, on one or many ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainer.engine import Engine
from trainer.logprobs import Reference, check_head, token_logprobs
from trainer.loss import LossConfig, LossStats, Totals, local_totals, policy_loss, row_weights
from trainer.samples import MicroBatch, micro_batches, pad_count
from trainer.types import TrainSample, UpdateStats


class NonFiniteUpdateError(RuntimeError):
    """Two updates in a row had a loss or gradient that is NaN or infinite."""


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """How rows become optimiser steps.

    ``max_tokens``: padded tokens of a micro-batch; memory, not the result, depends on it.
    ``epochs``: optimiser steps on the same rows (GRPO's mu). ``max_grad_norm``: L2 norm that
    gradients are clipped to.
    """

    max_tokens: int = 8192
    epochs: int = 1
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "epochs", "max_grad_norm"):
            if getattr(self, name) <= 0:
                raise ValueError(f"update.{name} is {getattr(self, name)}, expected > 0")


@dataclass(frozen=True, slots=True)
class _Pass:
    """A micro-batch with everything that stays fixed while its optimiser steps are made."""

    batch: MicroBatch
    weights_B: Tensor
    trainer_logprobs_BT: Tensor | None
    reference_logprobs_BT: Tensor | None


@dataclass(slots=True)
class _Sums:
    """Running sums of one rank over its micro-batches."""

    loss: float = 0.0
    tokens: int = 0
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    maxima: dict[str, float] = field(default_factory=dict)

    def add(self, loss: Tensor, entropy_BT: Tensor, stats: LossStats, tokens: int) -> None:
        self.loss += float(loss.detach())
        self.tokens += tokens
        self.sums["entropy"] += float(entropy_BT.sum())
        for name, value in stats.sums.items():
            self.sums[name] += float(value)
        for name, value in stats.maxima.items():
            self.maxima[name] = max(self.maxima.get(name, 0.0), float(value))


class Updater:
    """Turns rows into optimiser steps; every rank calls `update` with its own rows at the same time.

    ``temperature`` is the sampling temperature. ``reference`` is needed when ``loss.kl_coef`` > 0 and
    the rows carry no reference log-probs. ``skipped_in_row`` counts the non-finite updates since the
    last good one; it belongs in a checkpoint.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        engine: Engine,
        loss: LossConfig,
        config: UpdateConfig,
        *,
        temperature: float = 1.0,
        scheduler: LRScheduler | None = None,
        reference: Reference | None = None,
    ) -> None:
        check_head(engine.unwrap(model))
        self.model = model
        self.optimizer = optimizer
        self.engine = engine
        self.loss = loss
        self.config = config
        self.temperature = temperature
        self.scheduler = scheduler
        self.reference = reference
        self.skipped_in_row = 0
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if not self._parameters:
            raise ValueError(f"{type(model).__name__} has no parameter to train: all of them are frozen")
        self._device = self._parameters[0].device

    def update(self, samples: Sequence[TrainSample]) -> UpdateStats:
        """``config.epochs`` optimiser steps on ``samples``; metrics are means over them.

        Rows without a gradient (all advantages 0, no KL) are not computed, but count in the means. A
        rank may have no rows as long as another has. A step whose loss or gradient is not finite on any
        rank changes nothing, is counted and ends the update; the second such update in a row raises
        `NonFiniteUpdateError`.
        """
        totals = self._totals(samples)
        passes = self._passes(samples, totals)
        steps: list[UpdateStats] = []
        while passes and len(steps) < self.config.epochs and not (steps and steps[-1].skipped):
            steps.append(self._step(passes))
        rows = self.engine.gather(sum(len(p.batch.rows) for p in passes))
        counts = {"rows": totals.rows, "rows_trained": sum(rows), "tokens": totals.tokens}
        return _mean_stats(steps, {**counts, "micro_batches": len(passes)})

    def _totals(self, samples: Sequence[TrainSample]) -> Totals:
        own = local_totals(samples)
        ranks = self.engine.gather((own.tokens, own.rows, own.trajectories))
        tokens, rows, trajectories = (sum(column) for column in zip(*ranks, strict=True))
        if tokens == 0:
            raise ValueError("no token to train on any rank: every trajectory was masked or empty")
        return Totals(tokens, rows, trajectories)

    def _passes(self, samples: Sequence[TrainSample], totals: Totals) -> list[_Pass]:
        """Micro-batches of the rows that have a gradient, equal in number on every rank."""
        kept = [i for i, sample in enumerate(samples) if self._has_gradient(sample)]
        weights = row_weights(samples, totals, self.loss)[kept]
        rows = [samples[i] for i in kept]
        own = micro_batches(rows, self.config.max_tokens)
        return [
            self._prepare(batch.to(self._device), weights[list(batch.rows)].to(self._device))
            for batch in pad_count(own, self.engine.max(len(own)))
        ]

    def _has_gradient(self, sample: TrainSample) -> bool:
        return any(sample.advantages) or (self.loss.kl_coef > 0 and sample.use_kl)

    def _prepare(self, batch: MicroBatch, weights_B: Tensor) -> _Pass:
        trainer_BT = None
        if self.loss.importance_cap is not None and self.config.epochs > 1:
            with torch.no_grad():
                trainer_BT = token_logprobs(self.model, batch, self.temperature)[0]
        reference_BT = batch.reference_logprobs_BT if batch.rows else batch.behaviour_logprobs_BT
        if self.loss.kl_coef > 0 and reference_BT is None:
            if self.reference is None:
                raise ValueError("loss.kl_coef > 0 needs reference log-probs: give the Updater a Reference")
            reference_BT = self.reference.logprobs(batch, self.temperature)
        return _Pass(batch, weights_B, trainer_BT, reference_BT)

    def _step(self, passes: Sequence[_Pass]) -> UpdateStats:
        """One optimiser step over all micro-batches of all ranks."""
        self.optimizer.zero_grad(set_to_none=True)
        was_training = self.model.training
        self.model.train()
        local = _Sums()
        for item in passes:
            logprobs_BT, entropy_BT = token_logprobs(self.model, item.batch, self.temperature)
            loss, stats = policy_loss(
                logprobs_BT,
                item.batch,
                item.weights_B,
                self.loss,
                trainer_logprobs_BT=item.trainer_logprobs_BT,
                reference_logprobs_BT=item.reference_logprobs_BT,
            )
            self.engine.backward(loss)
            local.add(loss, entropy_BT, stats, tokens=int(item.batch.loss_mask_BT.sum()))
        self.model.train(was_training)
        self.engine.reduce_gradients(self._parameters)
        norm = float(nn.utils.clip_grad_norm_(self._parameters, self.config.max_grad_norm))
        result = _reduced(self.engine.gather(local), norm)
        self._apply(result)
        self.optimizer.zero_grad(set_to_none=True)
        return result

    def _apply(self, stats: UpdateStats) -> None:
        if not stats.skipped:
            self.skipped_in_row = 0
            self.engine.step(self.optimizer)
            if self.scheduler is not None:
                self.scheduler.step()
            return
        self.skipped_in_row += 1
        if self.skipped_in_row > 1:
            raise NonFiniteUpdateError(
                f"two updates in a row were not finite (loss {stats.loss}, gradient norm "
                f"{stats.grad_norm}); the weights are those of the last good "
                "update. Lower the learning rate or look at the last rollouts."
            )


def _reduced(ranks: Sequence[_Sums], grad_norm: float) -> UpdateStats:
    """Means over the trained tokens of all ranks; the same on every rank."""
    tokens = sum(rank.tokens for rank in ranks)
    loss = sum(rank.loss for rank in ranks)
    metrics = {name: sum(rank.sums[name] for rank in ranks) / tokens for name in ranks[0].sums}
    for name in ranks[0].maxima:
        metrics[name] = max(rank.maxima[name] for rank in ranks)
    skipped = not (math.isfinite(loss) and math.isfinite(grad_norm))
    return UpdateStats(loss=loss, grad_norm=grad_norm, skipped=skipped, metrics=metrics)


def _mean_stats(steps: Sequence[UpdateStats], counts: Mapping[str, float]) -> UpdateStats:
    """Means over the optimiser steps; the sampler/trainer gap is that of the first, before any change."""
    if not steps:
        return UpdateStats(loss=0.0, grad_norm=0.0, skipped=False, metrics=dict(counts))
    metrics = {name: fmean(step.metrics[name] for step in steps) for name in steps[0].metrics}
    for name in ("logprob_gap", "logprob_gap_max"):
        metrics[name] = steps[0].metrics[name]
    return UpdateStats(
        loss=fmean(step.loss for step in steps),
        grad_norm=fmean(step.grad_norm for step in steps),
        skipped=any(step.skipped for step in steps),
        metrics={**metrics, **counts},
    )
