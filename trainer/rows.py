"""The row that all loggers take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STEP, EVAL, ALARM = "step", "eval", "alarm"
"""Kinds of rows in metrics.jsonl."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One row: what was measured after ``step`` updates of ``phase``.

    ``values`` must be JSON and depend on nothing but config and seed; seconds and rates belong in
    ``timing``, so that two equal runs have equal values.
    """

    kind: str
    phase: str
    step: int
    values: Mapping[str, Any]
    timing: Mapping[str, float] = field(default_factory=dict)
