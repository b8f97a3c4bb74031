"""Loss values by hand, and independence of the split into micro-batches."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.trainer.make import random_samples
from trainer.logprobs import Reference, token_logprobs
from trainer.loss import LossConfig, local_totals, policy_loss, row_weights
from trainer.samples import MicroBatch, micro_batches, pad_count
from trainer.types import TrainSample

LOSSES = [
    LossConfig(),
    LossConfig(aggregation="sequence_mean", eps_high=0.28, kl_coef=0.1),
    LossConfig(aggregation="trajectory_mean", ratio="sequence", kl_coef=0.1, kl_unbiased=True),
    LossConfig(aggregation="constant", constant_length=32, delta=3.0),
    LossConfig(surrogate="cispo", importance_cap=2.0),
    LossConfig(surrogate="sft"),
]


def row(trajectory_id: str, advantages: list[float], behaviour: list[float]) -> TrainSample:
    n = len(advantages)
    return TrainSample(
        (1,) * (n + 1), (0,) + (1,) * n, (0.0, *behaviour), (0.0, *advantages), 0, trajectory_id
    )


def loss_of(
    samples: list[TrainSample], logprobs: list[list[float]], config: LossConfig, **given: Any
) -> float:
    (batch,) = micro_batches(samples, 10_000)
    weights = row_weights(samples, local_totals(samples), config)[list(batch.rows)]
    width = batch.input_ids_BT.shape[1]
    logprobs_BT = torch.tensor(
        [[0.0, *logprobs[i], *[0.0] * (width - 1 - len(logprobs[i]))] for i in batch.rows]
    )
    return policy_loss(logprobs_BT, batch, weights, config, **given)[0].item()


def test_aggregations_by_hand() -> None:
    # Ratio 1: a token's loss is minus its advantage. Trajectory a has rows of 1 and 3 tokens, b one of 2.
    samples = [
        row("a", [1.0], [-1.0]),
        row("a", [1.0, 2.0, 3.0], [-1.0] * 3),
        row("b", [4.0, 6.0], [-1.0] * 2),
    ]
    logprobs = [[-1.0] * n for n in (1, 3, 2)]

    def value(**options: Any) -> float:
        return loss_of(samples, logprobs, LossConfig(**options))

    assert value(aggregation="token_mean") == pytest.approx(-17 / 6)
    assert value(aggregation="sequence_mean") == pytest.approx(-(1 + 2 + 5) / 3)
    assert value(aggregation="trajectory_mean") == pytest.approx(-(7 / 4 + 5) / 2)
    assert value(aggregation="constant", constant_length=10) == pytest.approx(-17 / 20)


def test_clip_by_hand() -> None:
    def value(advantage: float, ratio: float, **options: Any) -> float:
        config = LossConfig(eps_low=0.2, eps_high=0.3, **options)
        return loss_of([row("a", [advantage], [-2.0])], [[-2.0 + math.log(ratio)]], config)

    assert value(1.0, 2.0) == pytest.approx(-1.3)
    assert value(1.0, 0.5) == pytest.approx(-0.5)
    assert value(-1.0, 0.5) == pytest.approx(0.8)
    assert value(-1.0, 5.0) == pytest.approx(5.0)
    assert value(-1.0, 5.0, delta=3.0) == pytest.approx(3.0)


def test_sequence_ratio_is_the_geometric_mean_of_the_row() -> None:
    config = LossConfig(ratio="sequence", eps_low=0.9, eps_high=9.0)
    value = loss_of([row("a", [1.0, 1.0], [-2.0, -2.0])], [[-2.0 + math.log(4.0), -2.0]], config)
    assert value == pytest.approx(-2.0)


def test_importance_cap_by_hand() -> None:
    sampler, trainer = [-2.0, -2.0], [-2.0 + math.log(1.5), -2.0 + math.log(8.0)]
    value = loss_of([row("a", [1.0, 1.0], sampler)], [trainer], LossConfig(importance_cap=2.0))
    assert value == pytest.approx(-(1.5 + 2.0) / 2)


def test_kl_is_off_for_rows_without_it() -> None:
    samples = [row("a", [0.0], [-1.0]), replace(row("b", [0.0], [-1.0]), use_kl=False)]
    reference_BT = torch.tensor([[0.0, -1.0 + math.log(2.0)]] * 2)
    value = loss_of(samples, [[-1.0]] * 2, LossConfig(kl_coef=0.5), reference_logprobs_BT=reference_BT)
    assert value == pytest.approx(0.5 * (2.0 - math.log(2.0) - 1) / 2)
    with pytest.raises(ValueError, match="no reference log-probs"):
        loss_of(samples, [[-1.0]] * 2, LossConfig(kl_coef=0.5))


def test_sft_weighs_tokens_by_their_advantage() -> None:
    value = loss_of([row("a", [1.0, 0.5], [0.0, 0.0])], [[-3.0, -2.0]], LossConfig(surrogate="sft"))
    assert value == pytest.approx((3.0 + 1.0) / 2)


def reinforce(
    logprobs_BT: torch.Tensor, ratio: torch.Tensor, advantages_BT: torch.Tensor, config: LossConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """A surrogate of a third party, found by its path."""
    return -advantages_BT * logprobs_BT, torch.zeros_like(advantages_BT, dtype=torch.bool)


def test_surrogate_by_dotted_path() -> None:
    config = LossConfig(surrogate="tests.trainer.test_loss.reinforce")
    assert loss_of([row("a", [2.0], [0.0])], [[-3.0]], config) == pytest.approx(6.0)


def test_metrics_are_sums_over_trained_tokens() -> None:
    samples = [row("a", [1.0, 1.0], [-2.0, -2.0])]
    (batch,) = micro_batches(samples, 100)
    logprobs_BT = torch.tensor([[9.0, -2.0 + math.log(2.0), -2.0]])
    stats = policy_loss(logprobs_BT, batch, torch.ones(1), LossConfig())[1]
    assert stats.sums["clip_fraction"] == 1
    assert stats.sums["ratio"].item() == pytest.approx(3.0)
    assert stats.sums["logprob_gap"].item() == pytest.approx(math.log(2.0))
    assert stats.sums["approx_kl"].item() == pytest.approx(1 - math.log(2.0), abs=1e-6)
    assert stats.maxima["ratio_max"].item() == pytest.approx(2.0)


@pytest.mark.parametrize("config", LOSSES, ids=lambda c: f"{c.surrogate}-{c.aggregation}")
def test_gradient_is_independent_of_the_split(config: LossConfig) -> None:
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=61,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    reference = Reference(model)
    with torch.no_grad():
        model.lm_head.weight.mul_(3.0)
    samples = random_samples(0, 24)
    weights = row_weights(samples, local_totals(samples), config)

    def gradient(batches: list[MicroBatch]) -> torch.Tensor:
        model.zero_grad()
        for batch in batches:
            logprobs_BT, _ = token_logprobs(model, batch)
            loss, _ = policy_loss(
                logprobs_BT,
                batch,
                weights[list(batch.rows)],
                config,
                reference_logprobs_BT=reference.logprobs(batch, 1.0),
            )
            loss.backward()
        return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])

    one = gradient(micro_batches(samples, 10_000))
    many = gradient(pad_count(micro_batches(samples, 30), 30))
    assert one.abs().max() > 1e-3
    assert (one - many).abs().max() <= 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"surrogate": "cliped"}, "expected one of"),
        ({"aggregation": "mean"}, "loss.aggregation is 'mean'"),
        ({"ratio": "row"}, "loss.ratio is 'row'"),
        ({"aggregation": "constant"}, "loss.constant_length is None"),
        ({"constant_length": 5}, "loss.constant_length is 5"),
        ({"delta": 1.1}, "expected > 1"),
        ({"eps_low": -0.1}, "loss.eps_low is -0.1"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossConfig(**options)
