"""The updater on one process and on two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.trainer.make import random_samples
from tests.trainer.ranks import run_ranks
from trainer.engine import LocalEngine
from trainer.logprobs import Reference, token_logprobs
from trainer.loss import LossConfig
from trainer.samples import micro_batches
from trainer.types import TrainSample
from trainer.update import NonFiniteUpdateError, UpdateConfig, Updater


def make_model() -> Any:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=61,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )


def make_updater(model: Any, loss: LossConfig | None = None, lr: float = 0.05, **config: Any) -> Updater:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    reference = Reference(model) if loss is not None and loss.kl_coef > 0 else None
    return Updater(
        model, optimizer, LocalEngine(), loss or LossConfig(), UpdateConfig(**config), reference=reference
    )


def weights_of(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def on_policy(model: Any, samples: list[TrainSample], shift: float = 0.0) -> list[TrainSample]:
    """The samples with the model's own log-probs plus ``shift``, as if it had sampled them."""
    result = []
    for sample in samples:
        logprobs_BT, _ = token_logprobs(model, micro_batches([sample], 1)[0])
        result.append(replace(sample, behaviour_logprobs=tuple((logprobs_BT[0] + shift).tolist())))
    return result


def test_raises_the_log_prob_of_good_tokens_and_lowers_bad_ones() -> None:
    model = make_model()
    samples = on_policy(model, random_samples(0, 16))
    stats = make_updater(model).update(samples)
    assert stats.metrics["logprob_gap"] < 1e-6
    assert stats.metrics["clip_fraction"] == 0
    assert stats.grad_norm > 0
    moved = 0.0
    for sample in samples:
        after = token_logprobs(model, micro_batches([sample], 1)[0])[0][0].tolist()
        for new, old, advantage in zip(after, sample.behaviour_logprobs, sample.advantages, strict=True):
            moved += advantage * (new - old)
    assert moved > 0


def test_micro_batch_size_does_not_change_the_weights() -> None:
    results = []
    for max_tokens in (10_000, 40):
        model = make_model()
        make_updater(model, LossConfig(kl_coef=0.1), max_tokens=max_tokens, epochs=2).update(
            random_samples(0, 16)
        )
        results.append(weights_of(model))
    assert (results[0] - results[1]).abs().max() <= 1e-6


def test_rows_without_gradient_are_not_computed_but_count() -> None:
    samples = random_samples(0, 8)
    dead = [replace(s, advantages=(0.0,) * len(s.advantages)) for s in random_samples(1, 8)]
    dead = [replace(s, trajectory_id=f"dead-{s.trajectory_id}") for s in dead]
    computed, skipped = make_model(), make_model()
    stats = make_updater(skipped).update(samples + dead)
    assert (stats.metrics["rows"], stats.metrics["rows_trained"]) == (16, 8)
    # A negligible KL term makes the dead rows count as having a gradient.
    make_updater(computed, LossConfig(kl_coef=1e-12)).update(samples + dead)
    assert (weights_of(computed) - weights_of(skipped)).abs().max() <= 1e-6


def test_update_without_any_signal_changes_nothing() -> None:
    model = make_model()
    before = weights_of(model)
    dead = [replace(s, advantages=(0.0,) * len(s.advantages)) for s in random_samples(1, 8)]
    stats = make_updater(model).update(dead)
    assert (stats.skipped, stats.grad_norm, stats.metrics["rows_trained"]) == (False, 0.0, 0)
    assert torch.equal(weights_of(model), before)


def test_no_row_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no token to train on any rank"):
        make_updater(make_model()).update([])


def test_second_epoch_takes_ratios_to_the_log_probs_before_the_first() -> None:
    config = LossConfig(importance_cap=2.0)
    model = make_model()
    samples = on_policy(model, random_samples(0, 8), shift=-0.5)
    stats = make_updater(model, config, lr=1.0, epochs=2).update(samples)
    assert stats.metrics["logprob_gap"] == pytest.approx(0.5, abs=1e-5)
    assert stats.metrics["ratio_max"] > 1.01


def test_gradient_is_clipped() -> None:
    model = make_model()
    before = weights_of(model)
    stats = make_updater(model, lr=1.0, max_grad_norm=1e-3).update(random_samples(0, 8))
    assert stats.grad_norm > 1e-2
    assert (weights_of(model) - before).norm().item() == pytest.approx(1e-3, rel=0.05)


def test_non_finite_update_is_skipped_and_the_second_in_a_row_raises() -> None:
    model = make_model()
    updater = make_updater(model)
    good = random_samples(0, 4)
    bad = [replace(good[0], advantages=(float("nan"),) * len(good[0].advantages)), *good[1:]]
    before = weights_of(model)
    for _ in range(2):
        assert updater.update(bad).skipped
        assert torch.equal(weights_of(model), before)
        assert not updater.update(good).skipped
        before = weights_of(model)
    updater.update(bad)
    assert updater.skipped_in_row == 1
    with pytest.raises(NonFiniteUpdateError, match="two updates in a row"):
        updater.update(bad)
    assert torch.equal(weights_of(model), before)


def test_sft_lowers_the_weighted_cross_entropy() -> None:
    model = make_model()
    samples = [
        replace(s, allowed=None, advantages=tuple(0.5 * m for m in s.loss_mask)) for s in random_samples(0, 8)
    ]
    updater = make_updater(model, LossConfig(surrogate="sft"), lr=1.0)
    first = updater.update(samples)
    assert first.loss == pytest.approx(0.5 * first.metrics["nll"], rel=1e-5)
    for _ in range(10):
        last = updater.update(samples)
    assert last.metrics["nll"] < first.metrics["nll"] - 0.1


def test_kl_needs_a_reference() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    updater = Updater(model, optimizer, LocalEngine(), LossConfig(kl_coef=0.1), UpdateConfig())
    with pytest.raises(ValueError, match="give the Updater a Reference"):
        updater.update(random_samples(0, 2))
    given = [replace(s, reference_logprobs=s.behaviour_logprobs) for s in random_samples(0, 2)]
    assert updater.update(given).metrics["kl"] > 0


def test_frozen_model_is_refused() -> None:
    model = make_model().requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter to train"):
        Updater(model, torch.optim.SGD([torch.zeros(1)]), LocalEngine(), LossConfig(), UpdateConfig())


@pytest.mark.parametrize("name", ["max_tokens", "epochs", "max_grad_norm"])
def test_wrong_options_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"update.{name} is 0"):
        UpdateConfig(**{name: 0})


CONFIG = LossConfig(aggregation="trajectory_mean", kl_coef=0.05)


def rank_share(rank: int, world_size: int) -> list[TrainSample]:
    """Rank 0 gets 5 of the 8 trajectories and so more micro-batches; both rows of one stay together."""
    samples = random_samples(3, 16)
    if world_size == 1:
        return samples
    return samples[:10] if rank == 0 else samples[10:]


def main(folder: Path) -> None:
    """What each rank of the test below runs."""
    model = make_model()
    updater = make_updater(model, CONFIG, max_tokens=60, epochs=2)
    engine = updater.engine
    all_stats = [updater.update(rank_share(engine.rank, engine.world_size)) for _ in range(2)]
    nan = [replace(s, advantages=(float("nan"),) * len(s.advantages)) for s in random_samples(5, 2)]
    skipped = updater.update(nan if engine.rank == 0 else random_samples(5, 2)).skipped
    torch.save((weights_of(model), all_stats[-1], skipped), folder / f"rank{engine.rank}.pt")
    engine.close()


def test_two_processes_equal_one(tmp_path: Path) -> None:
    run_ranks("from tests.trainer.test_update import main", 2, tmp_path)
    two = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=False) for rank in range(2)]
    main(tmp_path)
    weights, stats, _ = torch.load(tmp_path / "rank0.pt", weights_only=False)
    expected = {k: v for k, v in stats.metrics.items() if k != "micro_batches"}
    assert torch.equal(two[0][0], two[1][0])
    assert (weights - two[0][0]).abs().max() <= 1e-6
    for _, stats_of_rank, skipped in two:
        assert skipped
        assert stats_of_rank.loss == pytest.approx(stats.loss, abs=1e-6)
        assert {k: stats_of_rank.metrics[k] for k in expected} == pytest.approx(expected, abs=1e-5)
