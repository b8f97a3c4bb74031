"""Policy losses: a per-token surrogate, corrections, and weights that make it one number.

A "sequence" is one training row: the merged turns of an episode whose prompts extend one another.
For an agent that re-prompts every turn that is one turn, for a conversation the whole episode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

import torch
from torch import Tensor

from trainer.samples import MicroBatch
from trainer.types import TrainSample

Aggregation = Literal["token_mean", "sequence_mean", "trajectory_mean", "constant"]
Ratio = Literal["token", "sequence"]
_AGGREGATIONS = ("token_mean", "sequence_mean", "trajectory_mean", "constant")


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Which loss, and how it is averaged.

    ``surrogate``: ``clipped`` | ``cispo`` | ``sft``, or the dotted path of a `Surrogate`.
    ``aggregation``: ``token_mean`` (DAPO; every token alike; TRL's ``bnpo`` is the same taken per
    micro-batch), ``sequence_mean`` (GRPO), ``trajectory_mean`` (every episode alike, whatever its
    number of rows), ``constant`` (Dr. GRPO: sum over trajectories * ``constant_length``).
    ``ratio``: ``token``, or ``sequence`` for the geometric mean over the row (GSPO).
    ``eps_low``, ``eps_high``: clip range of the ratio, 1 - low to 1 + high; CISPO uses the upper end.
    ``delta``: upper bound of the ratio where the advantage is negative (dual clip), > 1 + eps_high.
    ``kl_coef``: coefficient of the k3 estimate of KL(policy || reference); 0 needs no reference.
    ``kl_unbiased``: multiply that estimate by the ratio, so that its gradient is the one of the reverse
    KL (DeepSeek-V3.2 section 3.1; TRL's default).
    ``importance_cap``: with a number, ratios are taken to the trainer's own log-probs from before the
    update and each token is weighted by min(trainer / sampler, cap); None takes ratios to the
    sampler's log-probs directly.
    """

    surrogate: str = "clipped"
    aggregation: Aggregation = "token_mean"
    ratio: Ratio = "token"
    eps_low: float = 0.2
    eps_high: float = 0.2
    delta: float | None = None
    kl_coef: float = 0.0
    kl_unbiased: bool = False
    importance_cap: float | None = None
    constant_length: int | None = None

    def __post_init__(self) -> None:
        if "." not in self.surrogate and self.surrogate not in SURROGATES:
            raise ValueError(
                f"loss.surrogate is {self.surrogate!r}, expected one of {sorted(SURROGATES)} or a dotted path"
            )
        if self.aggregation not in _AGGREGATIONS:
            raise ValueError(f"loss.aggregation is {self.aggregation!r}, expected one of {_AGGREGATIONS}")
        if self.ratio not in ("token", "sequence"):
            raise ValueError(f"loss.ratio is {self.ratio!r}, expected 'token' or 'sequence'")
        if (self.aggregation == "constant") != (self.constant_length is not None):
            raise ValueError(
                f"loss.constant_length is {self.constant_length} with aggregation {self.aggregation!r}: set "
                "it to the largest number of completion tokens for 'constant', leave it out otherwise"
            )
        if self.delta is not None and self.delta <= 1 + self.eps_high:
            raise ValueError(f"loss.delta is {self.delta}, expected > 1 + eps_high = {1 + self.eps_high}")
        for name in ("eps_low", "eps_high", "kl_coef"):
            if getattr(self, name) < 0:
                raise ValueError(f"loss.{name} is {getattr(self, name)}, expected >= 0")


Surrogate = Callable[[Tensor, Tensor, Tensor, LossConfig], tuple[Tensor, Tensor]]
"""``f(logprobs_BT, ratio, advantages_BT, config) -> (loss_BT, clipped_BT)``; ratio is (B, T) or (B, 1)."""


def clipped(
    logprobs_BT: Tensor, ratio: Tensor, advantages_BT: Tensor, config: LossConfig
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate with separate ends (DAPO equation 10) and an optional upper bound ``delta``."""
    bounded = ratio if config.delta is None else ratio.clamp(max=config.delta)
    inside = ratio.clamp(1 - config.eps_low, 1 + config.eps_high)
    loss_BT = -torch.minimum(bounded * advantages_BT, inside * advantages_BT)
    low_BT = (ratio < 1 - config.eps_low) & (advantages_BT < 0)
    high_BT = (ratio > 1 + config.eps_high) & (advantages_BT > 0)
    return loss_BT, low_BT | high_BT


def cispo(
    logprobs_BT: Tensor, ratio: Tensor, advantages_BT: Tensor, config: LossConfig
) -> tuple[Tensor, Tensor]:
    """REINFORCE weighted by the ratio, clipped above and detached (CISPO, MiniMax-M1 equation 4).

    TRL's ``epsilon_high`` for this loss is 1 + ``eps_high`` here.
    """
    top = 1 + config.eps_high
    loss_BT = -ratio.clamp(max=top).detach() * advantages_BT * logprobs_BT
    return loss_BT, (ratio > top) & (advantages_BT > 0)


def sft(
    logprobs_BT: Tensor, ratio: Tensor, advantages_BT: Tensor, config: LossConfig
) -> tuple[Tensor, Tensor]:
    """Cross-entropy; the sample's advantages are the weights of its tokens."""
    return -advantages_BT * logprobs_BT, torch.zeros_like(advantages_BT, dtype=torch.bool)


SURROGATES: Mapping[str, Surrogate] = {"clipped": clipped, "cispo": cispo, "sft": sft}


def surrogate_of(config: LossConfig) -> Surrogate:
    """The function that ``config.surrogate`` names."""
    if config.surrogate in SURROGATES:
        return SURROGATES[config.surrogate]
    module, _, name = config.surrogate.rpartition(".")
    found: Surrogate = getattr(import_module(module), name)
    return found


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers over all rows of all ranks that the aggregations divide by."""

    tokens: int
    rows: int
    trajectories: int


def local_totals(samples: Sequence[TrainSample]) -> Totals:
    """Totals of one rank's rows, to be summed over ranks; a trajectory's rows must all be on one rank."""
    return Totals(
        tokens=sum(sum(sample.loss_mask) for sample in samples),
        rows=len(samples),
        trajectories=len({sample.trajectory_id for sample in samples}),
    )


def row_weights(samples: Sequence[TrainSample], totals: Totals, config: LossConfig) -> Tensor:
    """Weight of each token of each row, so that the loss is the plain sum of weighted token losses.

    Independent of how rows are split into micro-batches and ranks, given the global ``totals``.
    Shape (len(samples),).
    """
    tokens = [sum(sample.loss_mask) for sample in samples]
    match config.aggregation:
        case "token_mean":
            weights = [1 / totals.tokens] * len(samples)
        case "sequence_mean":
            weights = [1 / (totals.rows * n) for n in tokens]
        case "trajectory_mean":
            of_trajectory: Counter[str] = Counter()
            for sample, n in zip(samples, tokens, strict=True):
                of_trajectory[sample.trajectory_id] += n
            weights = [1 / (totals.trajectories * of_trajectory[s.trajectory_id]) for s in samples]
        case "constant":
            assert config.constant_length is not None
            weights = [1 / (totals.trajectories * config.constant_length)] * len(samples)
    return torch.tensor(weights)


@dataclass(frozen=True, slots=True)
class LossStats:
    """Metrics of one micro-batch: sums and maxima over its trained tokens (float64 scalars)."""

    sums: Mapping[str, Tensor]
    maxima: Mapping[str, Tensor]


def policy_loss(
    logprobs_BT: Tensor,
    batch: MicroBatch,
    weights_B: Tensor,
    config: LossConfig,
    *,
    trainer_logprobs_BT: Tensor | None = None,
    reference_logprobs_BT: Tensor | None = None,
) -> tuple[Tensor, LossStats]:
    """Weighted sum of the token losses (a scalar), and its metrics.

    ``weights_B`` come from `row_weights`. ``trainer_logprobs_BT`` are the trainer's log-probs from
    before the update, used with ``importance_cap`` (None: the current ones, right for the first pass).
    """
    mask_BT = batch.loss_mask_BT
    behaviour_BT = batch.behaviour_logprobs_BT
    old_BT = behaviour_BT
    if config.importance_cap is not None:
        old_BT = logprobs_BT.detach() if trainer_logprobs_BT is None else trainer_logprobs_BT
    log_ratio_BT = (logprobs_BT - old_BT).masked_fill(~mask_BT, 0.0)
    ratio = torch.exp(_sequence_mean(log_ratio_BT, mask_BT) if config.ratio == "sequence" else log_ratio_BT)
    loss_BT, clipped_BT = surrogate_of(config)(logprobs_BT, ratio, batch.advantages_BT, config)
    sums: dict[str, Tensor] = {}
    if config.importance_cap is not None:
        correction_BT = torch.exp((old_BT - behaviour_BT).masked_fill(~mask_BT, 0.0))
        loss_BT = loss_BT * correction_BT.clamp(max=config.importance_cap)
        sums["importance_capped"] = _sum(correction_BT > config.importance_cap, mask_BT)
    if config.kl_coef > 0:
        if reference_logprobs_BT is None:
            raise ValueError(f"loss.kl_coef is {config.kl_coef} but the batch has no reference log-probs")
        kl_BT = k3(logprobs_BT, reference_logprobs_BT).masked_fill(~mask_BT, 0.0)
        kl_loss_BT = kl_BT * ratio if config.kl_unbiased else kl_BT
        loss_BT = loss_BT + config.kl_coef * kl_loss_BT * batch.kl_mask_B[:, None]
        sums["kl"] = _sum(kl_BT, mask_BT)
    loss = (loss_BT.masked_fill(~mask_BT, 0.0) * weights_B[:, None]).sum()
    gap_BT = (logprobs_BT.detach() - behaviour_BT).masked_fill(~mask_BT, 0.0)
    sums["clip_fraction"] = _sum(clipped_BT, mask_BT)
    sums["approx_kl"] = _sum(torch.expm1(gap_BT) - gap_BT, mask_BT)
    sums["logprob_gap"] = _sum(gap_BT.abs(), mask_BT)
    sums["ratio"] = _sum(ratio.expand_as(mask_BT), mask_BT)
    sums["nll"] = _sum(-logprobs_BT, mask_BT)
    maxima = {"logprob_gap_max": gap_BT.abs().max(), "ratio_max": ratio.detach().max()}
    return loss, LossStats(sums, maxima)


def k3(logprobs_BT: Tensor, reference_logprobs_BT: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy || reference) per token, for tokens drawn from the policy."""
    difference_BT = reference_logprobs_BT - logprobs_BT
    return torch.exp(difference_BT) - difference_BT - 1


def _sequence_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return (values_BT * mask_BT).sum(-1, keepdim=True) / mask_BT.sum(-1, keepdim=True).clamp(min=1)


def _sum(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return values_BT.detach().double().masked_fill(~mask_BT, 0.0).sum()
