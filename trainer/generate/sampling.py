"""How a token is drawn: one counter-based uniform per (seed, position), inverse CDF, exact log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


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
    shifted_BK = scaled_BK - scaled_BK.amax(-1, keepdim=True)
    # float64: a float32 sum over a large vocabulary is off by more than a rare token's probability.
    cumulative_BK = shifted_BK.exp().cumsum(-1, dtype=torch.float64)
    total_B1 = cumulative_BK[:, -1:]
    chosen_B1 = torch.searchsorted(
        cumulative_BK, uniform_B.to(total_B1.device)[:, None] * total_B1, right=True
    )
    logprob_B1 = shifted_BK.gather(1, chosen_B1) - total_B1.log()
    return chosen_B1[:, 0], logprob_B1[:, 0].float()
