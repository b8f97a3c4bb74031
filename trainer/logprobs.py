"""Log-probabilities of the trained tokens: the head runs there only."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainer.samples import MicroBatch

LOGITS_PER_CHUNK = 2**25
"""Logits kept at once (128 MiB in fp32); more are recomputed chunk by chunk in the backward pass."""


class UnsupportedHeadError(TypeError):
    """A model whose logits are not its output layer applied to its last hidden states."""


def token_logprobs(model: nn.Module, batch: MicroBatch, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy (nats) of every trained token under ``model``.

    Both (B, T), 0 where ``loss_mask_BT`` is False; entropy carries no gradient. Logits are divided by
    ``temperature`` (> 0) and normalised over the allowed tokens where the batch names them, as in
    sampling. Use ``check_head`` once for a new architecture.
    """
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}, expected > 0 (greedy rollouts: score at 1)")
    decoder, head, softcap, scale = _split(model)
    predicts_BT = batch.loss_mask_BT[:, 1:]
    hidden_BTD = decoder(input_ids=batch.input_ids_BT, use_cache=False).last_hidden_state
    hidden_ND = hidden_BTD[:, :-1][predicts_BT]
    targets_N = batch.input_ids_BT[:, 1:][predicts_BT]

    def score(
        hidden_ND: Tensor, targets_N: Tensor, limited_N: Tensor | None, allowed_MK: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits_NV = _logits(head(hidden_ND), softcap, scale)
        if temperature != 1.0:
            logits_NV = logits_NV / temperature
        if limited_N is None or allowed_MK is None:
            return _score_all(logits_NV, targets_N)
        return _score_limited(logits_NV, targets_N, limited_N, allowed_MK)

    pieces = list(_chunks(hidden_ND, targets_N, batch, rows=max(1, LOGITS_PER_CHUNK // _vocabulary(head))))
    if len(pieces) == 1 or not torch.is_grad_enabled():
        scored = [score(*piece) for piece in pieces]
    else:
        scored = [checkpoint(score, *piece, use_reentrant=False) for piece in pieces]
    logprobs_N = torch.cat([logprobs for logprobs, _ in scored])
    entropy_N = torch.cat([entropy for _, entropy in scored])
    zeros_BT = logprobs_N.new_zeros(batch.loss_mask_BT.shape)
    return (
        zeros_BT.masked_scatter(batch.loss_mask_BT, logprobs_N),
        zeros_BT.masked_scatter(batch.loss_mask_BT, entropy_N),
    )


def _score_all(logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    all_NV = torch.log_softmax(logits_NV, dim=-1)
    with torch.no_grad():
        entropy_N = -(all_NV.exp() * all_NV).sum(-1)
    return all_NV.gather(-1, targets_N[:, None]).squeeze(-1), entropy_N


def _score_limited(
    logits_NV: Tensor, targets_N: Tensor, limited_N: Tensor, allowed_MK: Tensor
) -> tuple[Tensor, Tensor]:
    outside_MK = allowed_MK < 0
    own_MV, own_M = logits_NV[limited_N], targets_N[limited_N]
    choices_MK = own_MV.gather(-1, allowed_MK.clamp(min=0)).masked_fill(outside_MK, -torch.inf)
    allowed_logprobs_MK = torch.log_softmax(choices_MK, dim=-1)
    with torch.no_grad():
        plogp_MK = (allowed_logprobs_MK.exp() * allowed_logprobs_MK).masked_fill(outside_MK, 0.0)
    logprobs_M = own_MV.gather(-1, own_M[:, None]).squeeze(-1) - torch.logsumexp(choices_MK, dim=-1)
    free_logprobs, free_entropy = _score_all(logits_NV[~limited_N], targets_N[~limited_N])
    zeros_N = logits_NV.new_zeros(len(targets_N))
    return (
        zeros_N.masked_scatter(limited_N, logprobs_M).masked_scatter(~limited_N, free_logprobs),
        zeros_N.masked_scatter(limited_N, -plogp_MK.sum(-1)).masked_scatter(~limited_N, free_entropy),
    )


def _chunks(
    hidden_ND: Tensor, targets_N: Tensor, batch: MicroBatch, rows: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor | None]]:
    used = 0
    for start in range(0, max(len(targets_N), 1), rows):
        piece = slice(start, start + rows)
        if batch.limited_N is None or batch.allowed_MK is None:
            yield hidden_ND[piece], targets_N[piece], None, None
            continue
        limited_N = batch.limited_N[piece]
        m = int(limited_N.sum())
        yield hidden_ND[piece], targets_N[piece], limited_N, batch.allowed_MK[used : used + m]
        used += m


def _split(model: nn.Module) -> tuple[nn.Module, nn.Module, float | None, float]:
    """Decoder, output layer, soft cap and factor of the logits of a transformers causal language model."""
    outer: Any = model
    inner: Any = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    config = inner.config.get_text_config()
    scale = getattr(config, "logit_scale", None) or getattr(config, "lm_head_multiplier", None) or 1.0
    scale /= getattr(config, "logits_scaling", None) or 1.0
    softcap = getattr(config, "final_logit_softcapping", None)
    return inner.base_model, inner.get_output_embeddings(), softcap, scale


def _logits(raw_NV: Tensor, softcap: float | None, scale: float) -> Tensor:
    logits_NV = raw_NV.float()
    if scale != 1.0:
        logits_NV = logits_NV * scale
    if softcap is not None:
        logits_NV = torch.tanh(logits_NV / softcap) * softcap
    return logits_NV


def _vocabulary(head: nn.Module) -> int:
    weight = head.weight
    assert isinstance(weight, Tensor)
    return weight.shape[0]


@torch.no_grad()
def check_head(model: nn.Module) -> None:
    """Compare the split forward with the model's own on two tokens; UnsupportedHeadError when they differ."""
    decoder, head, softcap, scale = _split(model)
    # Not id 0: it is often the padding token, whose embedding is zero.
    ids_BT = torch.tensor([[1, 2]], device=next(model.parameters()).device)
    was_training = model.training
    model.eval()
    own_BTV = model(input_ids=ids_BT, use_cache=False).logits.float()
    ours_BTV = _logits(head(decoder(input_ids=ids_BT, use_cache=False).last_hidden_state), softcap, scale)
    model.train(was_training)
    gap = (own_BTV - ours_BTV).abs().max().item()
    if gap > 1e-3 * own_BTV.abs().max().item():
        raise UnsupportedHeadError(
            f"{type(model).__name__} changes its logits after the output layer (difference {gap:.3g}); "
            "log-probs of trained tokens would be wrong. Add its rule to trainer.logprobs._split."
        )


class Reference:
    """The policy before training, for the KL term: a LoRA model with its adapter off, else a frozen copy."""

    def __init__(self, model: nn.Module) -> None:
        self._lora = hasattr(model, "disable_adapter")
        self._model = model if self._lora else copy.deepcopy(model).requires_grad_(False).eval()

    @torch.no_grad()
    def logprobs(self, batch: MicroBatch, temperature: float) -> Tensor:
        """Reference log-probs (B, T) of the trained tokens of ``batch``."""
        with self._active() as model:
            return token_logprobs(model, batch, temperature)[0]

    def state_dict(self) -> dict[str, Tensor]:
        """Weights of the frozen copy, for a checkpoint; empty for LoRA, whose base never changes."""
        return {} if self._lora else dict(self._model.state_dict())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over the weights of `state_dict`."""
        if not self._lora:
            self._model.load_state_dict(state)

    @contextmanager
    def _active(self) -> Iterator[nn.Module]:
        if not self._lora:
            yield self._model
            return
        model: Any = self._model
        was_training = model.training
        model.eval()
        try:
            with model.disable_adapter():
                yield model
        finally:
            model.train(was_training)
