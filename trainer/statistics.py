"""Intervals for rates and means."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.959963984540054


def wilson(successes: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson score interval of a success rate, as two numbers in [0, 1]; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    margin = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - margin), min(1.0, centre + margin)


_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Two-sided 95 % quantiles of Student's t for 1 to 10 degrees of freedom."""


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % Student-t interval of 2 to 11 runs: (mean, low, high)."""
    n = len(values)
    if not 2 <= n <= len(_T95) + 1:
        raise ValueError(f"mean_interval: found {n} values, expected 2 to {len(_T95) + 1}")
    mean = sum(values) / n
    variance = sum((v - mean) ** 2 for v in values) / (n - 1)
    margin = _T95[n - 2] * math.sqrt(variance / n)
    return mean, mean - margin, mean + margin
