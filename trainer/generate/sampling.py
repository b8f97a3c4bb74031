"""How a token is drawn: one counter-based uniform per (seed, position), inverse CDF, exact log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BLOCK = 128
"""Columns whose masses are summed before a token is looked for among them."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a local policy samples.

    ``temperature`` 0 takes the most likely token and reports log-probs at temperature 1.
    ``constrain`` honours ``GenerationRequest.choices``. ``max_batch`` bounds the rows decoded at
    once; further requests wait until a row leaves.
    """

    temperature: float = 1.0
    constrain: bool = False
    max_batch: int = 64

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(
                f"sampling.temperature is {self.temperature}; expected a number >= 0, where 0 is greedy"
            )
        if self.max_batch < 1:
            raise ValueError(f"sampling.max_batch is {self.max_batch}; expected at least 1")


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
    """Uniform numbers in [0, 1), each a function of its seed and position alone; shape (B,), float64.

    SplitMix64 (Steele et al. 2014) applied to the seed's hash plus the position as the counter.
    """
    seed_B = np.array([s & 0xFFFFFFFFFFFFFFFF for s in seeds], dtype=np.uint64)
    position_B = np.array(positions, dtype=np.uint64)
    with np.errstate(over="ignore"):
        bits_B = _mix(_mix(seed_B + _GOLDEN) + (position_B + np.uint64(1)) * _GOLDEN)
    # 52 bits: the largest, times any total, stays below that total after rounding.
    return torch.from_numpy((bits_B >> np.uint64(12)).astype(np.float64) * 2.0**-52)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def draw(
    logits_BV: Tensor, uniform_B: Tensor, allowed: Sequence[tuple[int, ...] | None], temperature: float
) -> tuple[list[int], list[float]]:
    """Draw one token per row and its log-prob under the distribution it was drawn from.

    ``allowed[b]`` limits row b to these ids, renormalised (None: the whole vocabulary).
    """
    ids: list[int] = [0] * len(allowed)
    logprobs: list[float] = [0.0] * len(allowed)
    free = [b for b, limit in enumerate(allowed) if limit is None]
    if free:
        everyone = len(free) == len(allowed)
        scores = logits_BV if everyone else logits_BV[free]
        chosen, values = _pick(scores.float(), uniform_B[free], temperature)
        for b, token, value in zip(free, chosen.tolist(), values.tolist(), strict=True):
            ids[b], logprobs[b] = token, value
    limited = [(b, limit) for b, limit in enumerate(allowed) if limit is not None]
    if limited:
        rows = [b for b, _ in limited]
        width = max(len(limit) for _, limit in limited)
        candidate_BA = torch.tensor(
            [limit + (limit[0],) * (width - len(limit)) for _, limit in limited], device=logits_BV.device
        )
        size_B1 = torch.tensor([[len(limit)] for _, limit in limited], device=logits_BV.device)
        scores = logits_BV[rows].gather(1, candidate_BA).float()
        scores = scores.masked_fill(torch.arange(width, device=scores.device) >= size_B1, -torch.inf)
        chosen, values = _pick(scores, uniform_B[rows], temperature)
        tokens = candidate_BA.gather(1, chosen[:, None])[:, 0]
        for b, token, value in zip(rows, tokens.tolist(), values.tolist(), strict=True):
            ids[b], logprobs[b] = token, value
    return ids, logprobs


def _pick(logits_BK: Tensor, uniform_B: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Column drawn per row and its log-prob. Columns of ``-inf`` are never drawn."""
    if temperature == 0:
        chosen_B = logits_BK.argmax(-1)
        logprob_BK = torch.log_softmax(logits_BK, -1)
        return chosen_B, logprob_BK.gather(1, chosen_B[:, None])[:, 0]
    scaled_BK = logits_BK if temperature == 1 else logits_BK / temperature
    top_B1 = scaled_BK.amax(-1, keepdim=True)
    chosen_B1, total_B1 = _invert((scaled_BK - top_B1).exp_(), uniform_B.to(logits_BK.device)[:, None])
    logprob_B1 = scaled_BK.gather(1, chosen_B1) - top_B1 - total_B1.log()
    return chosen_B1[:, 0], logprob_B1[:, 0].float()


def _invert(mass_BK: Tensor, uniform_B1: Tensor) -> tuple[Tensor, Tensor]:
    """Column where the running sum of ``mass_BK`` passes the uniform's share of the total, and the total.

    First the block of columns, then the column in it: running sums in float64 (in float32 they are
    off by more than a rare token's probability) are slow, and only one block's are needed.
    """
    rows, width = len(mass_BK), min(_BLOCK, mass_BK.shape[1])
    mass_BNW = pad(mass_BK, (0, -mass_BK.shape[1] % width)).view(rows, -1, width)
    size_BN = mass_BNW.sum(-1).double()
    upto_BN = size_BN.cumsum(-1)
    total_B1 = upto_BN[:, -1:]
    target_B1 = uniform_B1 * total_B1
    block_B1 = torch.searchsorted(upto_BN, target_B1, right=True)
    size_B1 = size_BN.gather(1, block_B1)
    share_B1 = (target_B1 - upto_BN.gather(1, block_B1) + size_B1) / size_B1
    inner_BW = mass_BNW[torch.arange(rows, device=mass_BK.device), block_B1[:, 0]].cumsum(
        -1, dtype=torch.float64
    )
    # Below one, so that the column found is never behind the last one of any mass.
    share_B1 = share_B1.clamp(0.0, 1.0 - 2.0**-52)
    column_B1 = torch.searchsorted(inner_BW, share_B1 * inner_BW[:, -1:], right=True)
    return block_B1 * width + column_B1, total_B1
