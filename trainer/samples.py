"""Trajectories to training rows, rows to padded micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.types import Trajectory, Turn
from trainer.types import GroupAdvantages, TrainSample


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows padded on the right to one length; B rows, T tokens, N trained tokens in row-major order.

    ``loss_mask_BT`` is True where the policy wrote the token. The other per-token tensors mean
    something only there. ``limited_N`` is None when no trained token had its choices limited; then
    ``allowed_MK`` holds the allowed ids of the M limited tokens, padded with -1. ``rows`` are the
    indices of the samples (empty for a batch that only pads the count). No attention mask is needed:
    padding is on the right and attention causal, so no trained token sees it.
    """

    input_ids_BT: Tensor
    loss_mask_BT: Tensor
    advantages_BT: Tensor
    behaviour_logprobs_BT: Tensor
    reference_logprobs_BT: Tensor | None
    kl_mask_B: Tensor
    limited_N: Tensor | None
    allowed_MK: Tensor | None
    rows: tuple[int, ...]

    def to(self, device: torch.device) -> MicroBatch:
        """The same batch with every tensor on ``device``."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                moved[field.name] = value.to(device)
        return replace(self, **moved)


def train_samples(
    group: Sequence[Trajectory], advantages: GroupAdvantages, *, kl_on_tied: bool = True
) -> list[TrainSample]:
    """Rows of every unmasked trajectory of a group, in order.

    Consecutive turns become one row when the later prompt is the earlier row plus new tokens, exactly
    by id, under the same policy version; any other turn starts a row. A turn with no completion token
    is left out. ``kl_on_tied`` False switches the KL term off for the rows of a group in which no
    token has an advantage.
    """
    signal = any(any(turn) for tokens in advantages.tokens if tokens is not None for turn in tokens)
    samples: list[TrainSample] = []
    for trajectory, tokens in zip(group, advantages.tokens, strict=True):
        if tokens is None:
            continue
        row: _Row | None = None
        for index, (turn, values) in enumerate(zip(trajectory.turns, tokens, strict=True)):
            if not turn.completion_ids:
                continue
            _check_turn(trajectory, index, values)
            if row is None or not row.extended_by(turn):
                if row is not None:
                    samples.append(row.sample(trajectory.trajectory_id, signal or kl_on_tied))
                row = _Row(turn.policy_version)
            row.append(turn, values)
        if row is not None:
            samples.append(row.sample(trajectory.trajectory_id, signal or kl_on_tied))
    return samples


class _Row:
    """A row being put together turn by turn."""

    def __init__(self, policy_version: int) -> None:
        self.policy_version = policy_version
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.advantages: list[float] = []
        self.allowed: list[tuple[int, ...] | None] = []

    def extended_by(self, turn: Turn) -> bool:
        n = len(self.ids)
        return (
            turn.policy_version == self.policy_version
            and len(turn.prompt_ids) >= n
            and list(turn.prompt_ids[:n]) == self.ids
        )

    def append(self, turn: Turn, advantages: Sequence[float]) -> None:
        new_prompt = turn.prompt_ids[len(self.ids) :]
        self.ids.extend((*new_prompt, *turn.completion_ids))
        self.mask.extend([0] * len(new_prompt) + [1] * len(turn.completion_ids))
        self.logprobs.extend([0.0] * len(new_prompt))
        self.logprobs.extend(turn.logprobs)
        self.advantages.extend([0.0] * len(new_prompt))
        self.advantages.extend(advantages)
        self.allowed.extend([None] * len(new_prompt))
        self.allowed.extend(turn.allowed or [None] * len(turn.completion_ids))

    def sample(self, trajectory_id: str, use_kl: bool) -> TrainSample:
        return TrainSample(
            input_ids=tuple(self.ids),
            loss_mask=tuple(self.mask),
            behaviour_logprobs=tuple(self.logprobs),
            advantages=tuple(self.advantages),
            policy_version=self.policy_version,
            trajectory_id=trajectory_id,
            allowed=tuple(self.allowed) if any(a is not None for a in self.allowed) else None,
            use_kl=use_kl,
        )


def _check_turn(trajectory: Trajectory, index: int, advantages: Sequence[float]) -> None:
    turn = trajectory.turns[index]
    n = len(turn.completion_ids)
    lengths = {"logprobs": len(turn.logprobs), "advantages": len(advantages)}
    if turn.allowed is not None:
        lengths["allowed"] = len(turn.allowed)
    wrong = {name: found for name, found in lengths.items() if found != n}
    where = f"turn {index} ({turn.stage}) of trajectory {trajectory.trajectory_id}"
    if wrong:
        raise ValueError(f"{where} has {n} completion tokens, but {wrong}: all must be equal")
    if not turn.prompt_ids:
        raise ValueError(
            f"{where} has an empty prompt: start it with a token, so that the next can be scored"
        )


def micro_batches(
    samples: Sequence[TrainSample], max_tokens: int, count: int | None = None
) -> list[MicroBatch]:
    """Split rows into batches of at most ``max_tokens`` padded tokens, longest rows first.

    The split depends on the lengths alone, ties in the given order. A row longer than ``max_tokens``
    is a batch by itself. ``count`` appends fully masked batches up to that number, so that every rank
    makes the same number of passes; ValueError when more are needed.
    """
    order = sorted(range(len(samples)), key=lambda i: (-len(samples[i].input_ids), i))
    chunks: list[list[int]] = []
    longest = 0
    for i in order:
        if not chunks or longest * (len(chunks[-1]) + 1) > max_tokens:
            chunks.append([])
            longest = len(samples[i].input_ids)
        chunks[-1].append(i)
    batches = [_collate([samples[i] for i in chunk], tuple(chunk)) for chunk in chunks]
    return batches if count is None else pad_count(batches, count)


def pad_count(batches: Sequence[MicroBatch], count: int) -> list[MicroBatch]:
    """``batches`` and fully masked ones up to ``count``; ValueError when there are more already."""
    if len(batches) > count:
        raise ValueError(f"{len(batches)} micro-batches, count is {count}: raise max_tokens or count")
    return [*batches, *[_masked_batch()] * (count - len(batches))]


def _collate(samples: Sequence[TrainSample], rows: tuple[int, ...]) -> MicroBatch:
    length = max(len(sample.input_ids) for sample in samples)
    loss_mask_BT = _padded([s.loss_mask for s in samples], length, np.bool_)
    if bool(loss_mask_BT[:, 0].any()):
        raise ValueError("the first token of a row has loss_mask 1: nothing precedes it to score it by")
    references = [s.reference_logprobs for s in samples if s.reference_logprobs is not None]
    if references and len(references) != len(samples):
        raise ValueError(
            f"{len(references)} of {len(samples)} rows have reference log-probs: give all or none"
        )
    limited_N, allowed_MK = _allowed(samples)
    return MicroBatch(
        input_ids_BT=_padded([s.input_ids for s in samples], length, np.int64),
        loss_mask_BT=loss_mask_BT,
        advantages_BT=_padded([s.advantages for s in samples], length, np.float32),
        behaviour_logprobs_BT=_padded([s.behaviour_logprobs for s in samples], length, np.float32),
        reference_logprobs_BT=_padded(references, length, np.float32) if references else None,
        kl_mask_B=torch.tensor([s.use_kl for s in samples]),
        limited_N=limited_N,
        allowed_MK=allowed_MK,
        rows=rows,
    )


def _padded(values: Sequence[Sequence[float]], length: int, dtype: Any) -> Tensor:
    array_BT = np.zeros((len(values), length), dtype=dtype)
    for i, row in enumerate(values):
        array_BT[i, : len(row)] = row
    return torch.from_numpy(array_BT)


def _allowed(samples: Sequence[TrainSample]) -> tuple[Tensor | None, Tensor | None]:
    if all(sample.allowed is None for sample in samples):
        return None, None
    limited: list[bool] = []
    sets: list[tuple[int, ...]] = []
    for sample in samples:
        allowed = sample.allowed or (None,) * len(sample.input_ids)
        for token, trained, ids in zip(sample.input_ids, sample.loss_mask, allowed, strict=True):
            if trained:
                limited.append(ids is not None)
                if ids is not None:
                    _check_allowed(sample, token, ids)
                    sets.append(ids)
    if not sets:
        return None, None
    lengths_M = np.array([len(ids) for ids in sets])
    inside_MK = np.arange(lengths_M.max()) < lengths_M[:, None]
    allowed_MK = np.full(inside_MK.shape, -1, dtype=np.int64)
    allowed_MK[inside_MK] = np.fromiter(chain.from_iterable(sets), dtype=np.int64, count=int(lengths_M.sum()))
    return torch.tensor(limited), torch.from_numpy(allowed_MK)


def _check_allowed(sample: TrainSample, token: int, ids: tuple[int, ...]) -> None:
    if token not in ids:
        raise ValueError(
            f"trajectory {sample.trajectory_id} wrote token {token}, which is not among the {len(ids)} "
            f"allowed there ({ids[:10]} ...): the policy must report the ids it sampled from"
        )


def _masked_batch() -> MicroBatch:
    zeros_BT = torch.zeros(1, 2)
    return MicroBatch(
        input_ids_BT=torch.zeros(1, 2, dtype=torch.int64),
        loss_mask_BT=torch.zeros(1, 2, dtype=torch.bool),
        advantages_BT=zeros_BT,
        behaviour_logprobs_BT=zeros_BT,
        reference_logprobs_BT=None,
        kl_mask_B=torch.zeros(1, dtype=torch.bool),
        limited_N=None,
        allowed_MK=None,
        rows=(),
    )
