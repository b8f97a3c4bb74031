"""Draws: the right distribution, exact log-probs, one uniform per seed and position."""

from __future__ import annotations

import torch

from trainer.generate.sampling import draw, uniforms


def test_uniforms_are_uniform_and_independent_over_seeds_and_positions() -> None:
    count = 200
    seeds = [s for s in range(count) for _ in range(count)]
    positions = list(range(count)) * count
    u = uniforms(seeds, positions)
    assert u.min() >= 0
    assert u.max() < 1
    # 100 bins of 400 expected: chi-square with 99 degrees of freedom has standard deviation 14.
    bins = torch.histc(u, 100, 0, 1)
    assert abs(float(((bins - 400) ** 2 / 400).sum()) - 99) < 4 * 14
    grid = u.view(count, count) - 0.5
    for neighbour in (grid[1:] * grid[:-1], grid[:, 1:] * grid[:, :-1]):
        # Mean of products of independent uniforms: standard deviation (1/12) / sqrt(n).
        assert abs(float(neighbour.mean())) < 4 / 12 / neighbour.numel() ** 0.5


def test_frequencies_follow_the_tempered_distribution() -> None:
    count = 40_000
    logits_V = torch.tensor([0.0, 1.0, -2.0, 2.0])
    ids, logprobs = draw(
        logits_V.expand(count, -1), uniforms(range(count), [0] * count), [None] * count, temperature=2.0
    )
    expected_V = torch.softmax(logits_V / 2, -1)
    share_V = torch.bincount(torch.tensor(ids), minlength=4) / count
    assert (share_V - expected_V).abs().max() < 4 * (0.25 / count) ** 0.5
    assert torch.allclose(torch.tensor(logprobs), expected_V.log()[ids], atol=1e-6)


def test_allowed_tokens_are_renormalised_row_by_row() -> None:
    logits_BV = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    allowed = [(2, 5, 7), None, (4,)]
    for seed in range(50):
        ids, logprobs = draw(logits_BV, uniforms([seed] * 3, range(3)), allowed, 1.0)
        assert ids[0] in (2, 5, 7)
        assert ids[2] == 4
        limited_V = torch.log_softmax(logits_BV[0, [2, 5, 7]], -1)
        assert abs(logprobs[0] - float(limited_V[(2, 5, 7).index(ids[0])])) < 1e-6
        assert abs(logprobs[1] - float(torch.log_softmax(logits_BV[1], -1)[ids[1]])) < 1e-6
        assert logprobs[2] == 0.0


def test_impossible_tokens_are_never_drawn() -> None:
    logits_BV = torch.full((4, 6), -torch.inf)
    logits_BV[:, 3] = 0.0
    largest = torch.tensor([0.0, 0.5, 1 - 2**-52, 1 - 2**-52], dtype=torch.float64)
    ids, _ = draw(logits_BV, largest, [None] * 4, 1.0)
    assert ids == [3, 3, 3, 3]


def test_a_large_vocabulary_is_drawn_by_the_inverse_of_its_running_sum() -> None:
    draws = torch.Generator().manual_seed(0)
    logits_BV = torch.randn(500, 1000, generator=draws) * 3
    logits_BV[:, 100:400] = -torch.inf
    logits_BV[:, -50:] = -torch.inf
    uniform_B = torch.rand(500, generator=draws, dtype=torch.float64)
    uniform_B[0] = 0.0
    uniform_B[1] = 1 - 2**-52
    ids, logprobs = draw(logits_BV, uniform_B, [None] * 500, 1.0)
    plain_BV = torch.log_softmax(logits_BV.double(), -1)
    sums_BV = plain_BV.exp().cumsum(-1)
    after_B = sums_BV[torch.arange(500), ids]
    before_B = after_B - plain_BV[torch.arange(500), ids].exp()
    assert ((before_B - 1e-6 < uniform_B) & (uniform_B < after_B + 1e-6)).all()
    assert (torch.tensor(logprobs) - plain_BV[torch.arange(500), ids]).abs().max() < 1e-5
