"""Forward pass of the Llama family without module calls, for decoding a few tokens at a time.

A tiny model's module code (norms, rotary positions, calls) costs as much as its arithmetic. Here
norms are one operation, keys and queries are rotated in place by one complex product, sums and
activations are in place, and the last layer computes only the rows whose logits are wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, silu
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from trainer.generate.attention import Pack, attend

KNOWN = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
HEAD_BLOCK = 512
"""Columns of the output layer in one product on a CPU: a wider product of few rows leaves its caches."""


@dataclass(slots=True)
class _Layer:
    """Weights of one layer. ``qkv`` (P, E) and its bias are copies, the rest are the model's own."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    out_EP: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate: nn.Linear
    up: nn.Linear
    down_FE: Tensor
    down_bias: Tensor | None


class LeanForward:
    """Logits of a model that `lean_forward` accepts, equal to its own up to rounding.

    Holds copies of the attention's input projections and of the output layer: make a new one after
    each change of the weights.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        core: Any = model.get_decoder()
        attention = core.layers[0].self_attn
        self._embed = core.embed_tokens
        self._rotary = core.rotary_emb
        self._dim = int(attention.head_dim)
        self._scaling = float(attention.scaling)
        self._heads = int(model.config.num_attention_heads)
        self._rotated = self._heads + int(model.config.num_key_value_heads)
        self._eps = float(model.config.rms_norm_eps)
        self._norm = core.norm.weight
        self._layers = [self._layer(layer) for layer in core.layers]
        head: Any = model.get_output_embeddings()
        width = HEAD_BLOCK if head.weight.device.type == "cpu" else len(head.weight)
        self._head = [block.t().contiguous() for block in head.weight.split(width)]
        self._vocabulary = len(head.weight)

    def _layer(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
        biased = inputs[0].bias is not None
        query_norm, key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        return _Layer(
            norm=layer.input_layernorm.weight,
            qkv=self._paired(torch.cat([m.weight for m in inputs])),
            qkv_bias=self._paired(torch.cat([m.bias for m in inputs])) if biased else None,
            query_norm=None if query_norm is None else self._interleaved(query_norm.weight),
            key_norm=None if key_norm is None else self._interleaved(key_norm.weight),
            out_EP=attention.o_proj.weight.t(),
            out_bias=attention.o_proj.bias,
            mlp_norm=layer.post_attention_layernorm.weight,
            gate=mlp.gate_proj,
            up=mlp.up_proj,
            down_FE=mlp.down_proj.weight.t(),
            down_bias=mlp.down_proj.bias,
        )

    def _paired(self, rows: Tensor) -> Tensor:
        """Put the two halves that rotary positions pair side by side, in queries and keys alike.

        Their products do not change, and a pair is one complex number then (Su et al. 2021, eq. 13).
        """
        turned = rows[: self._rotated * self._dim]
        pairs = turned.reshape(self._rotated, 2, self._dim // 2, -1).transpose(1, 2)
        return torch.cat((pairs.reshape(turned.shape), rows[len(turned) :]))

    def _interleaved(self, weight_D: Tensor) -> Tensor:
        return weight_D.view(2, -1).t().flatten()

    def __call__(self, ids_N: Tensor, pack: Pack, keep_B: Tensor) -> Tensor:
        """Logits (B, V) at the pack's positions ``keep_B``; the pack's cache gets all keys and values."""
        x_NE = self._embed(ids_N)
        cos_ND, sin_ND = (part[0] for part in self._rotary(x_NE, pack.position_N[None]))
        half = self._dim // 2
        turn_N1C = torch.complex(cos_ND[:, :half], sin_ND[:, :half])[:, None]
        for index, layer in enumerate(self._layers):
            attended_NP = self._attention(index, layer, x_NE, turn_N1C, pack)
            if index == len(self._layers) - 1 and len(keep_B) < len(x_NE):
                x_NE, attended_NP = x_NE[keep_B], attended_NP[keep_B]
            _add_product(x_NE, attended_NP, layer.out_EP, layer.out_bias)
            normed_NE = rms_norm(x_NE, x_NE.shape[1:], layer.mlp_norm, self._eps)
            gated_NF = silu(linear(normed_NE, layer.gate.weight, layer.gate.bias), inplace=True)
            gated_NF.mul_(linear(normed_NE, layer.up.weight, layer.up.bias))
            _add_product(x_NE, gated_NF, layer.down_FE, layer.down_bias)
        normed_BE = rms_norm(x_NE, x_NE.shape[1:], self._norm, self._eps)
        return self._logits(normed_BE)

    def _attention(self, index: int, layer: _Layer, x_NE: Tensor, turn_N1C: Tensor, pack: Pack) -> Tensor:
        normed_NE = rms_norm(x_NE, x_NE.shape[1:], layer.norm, self._eps)
        qkv_NHD = linear(normed_NE, layer.qkv, layer.qkv_bias).view(len(x_NE), -1, self._dim)
        query, key = qkv_NHD[:, : self._heads], qkv_NHD[:, self._heads : self._rotated]
        if layer.query_norm is not None:
            query.copy_(rms_norm(query, (self._dim,), layer.query_norm, self._eps))
            key.copy_(rms_norm(key, (self._dim,), layer.key_norm, self._eps))
        pairs = qkv_NHD[:, : self._rotated].view(len(x_NE), self._rotated, -1, 2)
        torch.view_as_complex(pairs).mul_(turn_N1C)
        return attend(pack, index, query, key, qkv_NHD[:, self._rotated :], self._scaling).flatten(1)

    def _logits(self, normed_BE: Tensor) -> Tensor:
        logits_BV = normed_BE.new_empty((len(normed_BE), self._vocabulary))
        start = 0
        for block_EV in self._head:
            stop = start + block_EV.shape[1]
            torch.mm(normed_BE, block_EV, out=logits_BV[:, start:stop])
            start = stop
        return logits_BV


def _add_product(x_NE: Tensor, y_NF: Tensor, weight_FE: Tensor, bias: Tensor | None) -> None:
    x_NE.addmm_(y_NF, weight_FE)
    if bias is not None:
        x_NE.add_(bias)


def lean_forward(model: PreTrainedModel) -> LeanForward | None:
    """The lean pass of ``model`` as it is now, or None where only its own code computes what it means.

    Accepted are Llama, Qwen2 and Qwen3 in float32 on one device, with plain layers (no adapters, no
    quantisation) and no hooks but on the embeddings.
    """
    if type(model) not in KNOWN or model.config.hidden_act != "silu":
        return None
    kinds = {(p.dtype, p.device) for p in model.parameters()}
    if len(kinds) != 1 or next(iter(kinds))[0] != torch.float32:
        return None
    projections = [m for name, m in model.named_modules() if name.endswith(("_proj", "lm_head"))]
    if any(type(m) is not nn.Linear for m in projections) or model.get_output_embeddings().bias is not None:
        return None
    # A hook, or a forward method set on an instance (accelerate's offloading), would be passed by.
    embeddings = model.get_input_embeddings()
    inner = [module for module in model.modules() if module is not embeddings]
    if any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in inner):
        return None
    return LeanForward(model)
