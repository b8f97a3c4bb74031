"""Values inside the trainer: what turns trajectories into an update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.types import AllowedTokens

TokenAdvantages = tuple[tuple[float, ...], ...]
"""Advantage per turn and completion token of one trajectory."""


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """Advantages of the G trajectories of one task; None where the trajectory is masked.

    ``tied`` is True when every scored trajectory has the same reward, so that all advantages from
    the outcome are exactly 0.
    """

    tokens: tuple[TokenAdvantages | None, ...]
    outcome: tuple[float | None, ...]
    tied: bool


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One row of training: the token ids of one or several consecutive turns of a trajectory.

    All per-token fields have the length T of ``input_ids``. ``loss_mask[t]`` is 1 where the policy
    wrote token t; the other per-token fields mean something only there. ``allowed[t]`` are the ids
    token t was drawn from (None: all).
    """

    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    behaviour_logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    policy_version: int
    trajectory_id: str
    allowed: AllowedTokens | None = None
    reference_logprobs: tuple[float, ...] | None = None
    use_kl: bool = True
    """False for a tied group whose KL term is switched off."""


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What one optimiser step did: means over all trained tokens and trajectories of all ranks."""

    loss: float
    grad_norm: float
    skipped: bool
    metrics: Mapping[str, float]
