"""Attention over cached sequences of different lengths, packed in one row without padding.

Registered with transformers as an attention implementation, which is how its vLLM and TGI
backends plug in: the model's own code runs unchanged on ``input_ids`` of shape (1, N), and this
function splits the N tokens by sequence. It works for every architecture that dispatches its
attention through ``AttentionInterface`` (Llama, Qwen2, Qwen3 and most others).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from trainer.generate.kv import SlotCache

IMPLEMENTATION = "memgrpo_slots"
CALL_COST = 384
"""One attention call costs as much as reading about this many cached positions (measured on a CPU)."""


@dataclass(slots=True)
class Piece:
    """One call of attention: tokens ``first..last`` of the pack over ``length`` positions of slots
    ``slot..slot + slots``. ``bias`` is added to the scores (None: nothing is masked)."""

    first: int
    last: int
    slot: int
    slots: int
    length: int
    bias: Tensor | None
    causal: bool = False


@dataclass(slots=True)
class Pack:
    """Tokens of one forward pass and how their attention is split."""

    cache: SlotCache
    slot_N: Tensor
    position_N: Tensor
    pieces: list[Piece]


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    slots: Pack | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """`attend` as transformers calls it.

    ``query`` (1, H, N, D), ``key`` and ``value`` (1, K, N, D); returns (1, N, H, D).
    """
    if slots is None:
        raise ValueError(
            "the sampler's attention was called by a training pass; train with 'sdpa' or 'eager'"
        )
    query_NHD, key_NKD, value_NKD = (part[0].transpose(0, 1) for part in (query, key, value))
    return attend(slots, module.layer_idx, query_NHD, key_NKD, value_NKD, scaling)[None], None


def attend(
    pack: Pack, layer: int, query_NHD: Tensor, key_NKD: Tensor, value_NKD: Tensor, scaling: float | None
) -> Tensor:
    """Store the new keys and values of a layer in their slots, then attend piece by piece: (N, H, D)."""
    keys, values = pack.cache.layer(layer, key_NKD)
    keys[pack.slot_N, :, pack.position_N] = key_NKD
    values[pack.slot_N, :, pack.position_N] = value_NKD
    (_, heads, dim), kv_heads = query_NHD.shape, key_NKD.shape[1]
    out_NHD = torch.empty(query_NHD.shape, dtype=query_NHD.dtype, device=query_NHD.device)
    for piece in pack.pieces:
        span = slice(piece.slot, piece.slot + piece.slots)
        k = keys[span, :, : piece.length]
        v = values[span, :, : piece.length]
        rows = query_NHD[piece.first : piece.last]
        if piece.slots == rows.shape[0]:
            # One token a sequence: heads that share keys become the query axis, so keys are read once.
            q = rows.reshape(-1, kv_heads, heads // kv_heads, dim)
            got = scaled_dot_product_attention(q, k, v, attn_mask=piece.bias, scale=scaling)
            out_NHD[piece.first : piece.last] = got.view(-1, heads, dim)
            continue
        got = scaled_dot_product_attention(
            rows.transpose(0, 1)[None],
            k,
            v,
            attn_mask=piece.bias,
            is_causal=piece.causal,
            scale=scaling,
            enable_gqa=heads != kv_heads,
        )
        out_NHD[piece.first : piece.last] = got[0].transpose(0, 1)
    return out_NHD


AttentionInterface.register(IMPLEMENTATION, slot_attention)


@contextmanager
def slot_attention_of(model: PreTrainedModel) -> Iterator[None]:
    """Run ``model`` in eval mode with `slot_attention`, then restore how it was."""
    config, training = model.config, model.training
    before = config._attn_implementation
    config._attn_implementation = IMPLEMENTATION
    if training:
        model.train(False)
    try:
        yield
    finally:
        config._attn_implementation = before
        if training:
            model.train()


def plan(spans: Sequence[tuple[int, int, int]], dtype: torch.dtype, device: torch.device) -> list[Piece]:
    """Split a pack into attention calls.

    ``spans`` are (slot, first new position, last new position + 1) in pack order; the sequences
    with one new token come first, in order of their slots. Those in consecutive slots are joined into
    one padded call while the padding costs less than the call it saves.
    """
    pieces: list[Piece] = []
    run: list[tuple[int, int]] = []
    offset = longest = 0
    for slot, begin, end in spans:
        if end - begin > 1:
            break
        padding = max(0, end - longest) * len(run) + max(0, longest - end)
        if run and (slot != run[-1][0] + 1 or padding > CALL_COST):
            pieces.append(_decode_piece(run, offset, dtype, device))
            offset += len(run)
            run, longest = [], 0
        run.append((slot, end))
        longest = max(longest, end)
    if run:
        pieces.append(_decode_piece(run, offset, dtype, device))
    offset = 0
    for slot, begin, end in spans:
        if end - begin > 1:
            pieces.append(_extend_piece(slot, begin, end, offset, dtype, device))
        offset += end - begin
    return pieces


def _decode_piece(
    run: Sequence[tuple[int, int]], offset: int, dtype: torch.dtype, device: torch.device
) -> Piece:
    lengths = [length for _, length in run]
    longest = max(lengths)
    bias = None
    if min(lengths) < longest:
        masked_RL = torch.arange(longest, device=device) >= torch.tensor(lengths, device=device)[:, None]
        bias = torch.zeros(masked_RL.shape, dtype=dtype, device=device).masked_fill_(masked_RL, -torch.inf)
        bias = bias[:, None, None, :]
    return Piece(offset, offset + len(run), run[0][0], len(run), longest, bias)


def _extend_piece(
    slot: int, begin: int, end: int, offset: int, dtype: torch.dtype, device: torch.device
) -> Piece:
    stop = offset + end - begin
    if begin == 0:
        return Piece(offset, stop, slot, 1, end, None, causal=True)
    future_TL = torch.arange(end, device=device) > torch.arange(begin, end, device=device)[:, None]
    bias = torch.zeros(future_TL.shape, dtype=dtype, device=device).masked_fill_(future_TL, -torch.inf)
    return Piece(offset, stop, slot, 1, end, bias[None, None])
