"""The lean pass gives the model's own logits, follows its weights, and leaves other models alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model, inject_adapter_in_model
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.trainer.generation import policy, requests, tiny_model, worst_gap
from trainer.generate import lean
from trainer.generate.attention import Pack, plan
from trainer.generate.kv import SlotCache
from trainer.generate.lean import LeanForward, lean_forward
from trainer.rollout import generate_all

SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.15,
}
SCALED = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0}
SCALED |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
CASES: dict[str, tuple[type[PreTrainedModel], type[Any], dict[str, Any]]] = {
    "qwen2 tied": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2 untied": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": False}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),
    "qwen3 biased": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 8, "attention_bias": True}),
    "llama tied": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": True}),
    "llama biased": (LlamaForCausalLM, LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama scaled positions": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": SCALED}),
    "llama without shared heads": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 6}),
}


def build(case: str) -> PreTrainedModel:
    """A random model whose biases and norms are random too; their usual start hides mistakes."""
    kind, config, options = CASES[case]
    torch.manual_seed(0)
    model = kind(config(**(SHAPE | options))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
    return model


def lean_logits(forward: LeanForward, sequences: list[list[int]], cuts: list[int]) -> Tensor:
    """Logits of each sequence's last token, its first ``cut`` tokens fed before the rest."""
    cache = SlotCache(128, slots=len(sequences))
    begins, ends = [0] * len(sequences), cuts
    for _ in range(2):
        spans = [(slot, b, e) for slot, (b, e) in enumerate(zip(begins, ends, strict=True))]
        spans.sort(key=lambda span: span[2] - span[1] > 1)
        ids = [token for slot, b, e in spans for token in sequences[slot][b:e]]
        pack = Pack(
            cache,
            torch.tensor([slot for slot, b, e in spans for _ in range(b, e)]),
            torch.tensor([p for _, b, e in spans for p in range(b, e)]),
            plan(spans, torch.float32, torch.device("cpu")),
        )
        last = torch.tensor([e - b for _, b, e in spans]).cumsum(0) - 1
        logits = forward(torch.tensor(ids), pack, last)
        begins, ends = ends, [len(s) for s in sequences]
    return logits[torch.tensor([slot for slot, _, _ in spans]).argsort()]


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_models_own(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "HEAD_BLOCK", 128)
    model = build(case)
    draws = torch.Generator().manual_seed(1)
    lengths, cuts = [30, 9, 17, 40, 41], [29, 4, 16, 39, 1]
    sequences = [torch.randint(300, (n,), generator=draws).tolist() for n in lengths]
    with torch.no_grad():
        forward = lean_forward(model)
        assert forward is not None
        got = lean_logits(forward, sequences, cuts)
        expected = torch.stack([model(torch.tensor([s])).logits[0, -1] for s in sequences])
    assert expected.std() > 0.3
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_new_weights_change_the_samples() -> None:
    subject = policy("qwen2")
    asked = requests(6, max_new_tokens=12)
    before = generate_all(subject, asked)
    optimizer = torch.optim.SGD(subject.model.parameters(), lr=1.0)
    ids = torch.tensor([asked[0].prompt_ids + before[0].token_ids])
    subject.model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    subject.version += 1
    after = generate_all(subject, asked)
    assert [g.token_ids for g in after] != [g.token_ids for g in before]
    assert worst_gap(subject.model, asked, after) < 1e-5


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_policy_samples_alike_with_and_without(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = requests(8, siblings=2)
    with_lean = generate_all(policy(kind), asked)
    monkeypatch.setattr("trainer.generate.engine.lean_forward", lambda model: None)
    without = generate_all(policy(kind), asked)
    assert [g.token_ids for g in with_lean] == [g.token_ids for g in without]


def other_architecture() -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**SHAPE))


def adapted() -> PreTrainedModel:
    options = LoraConfig(target_modules=["q_proj"], r=2)
    wrapped: PreTrainedModel = get_peft_model(tiny_model("qwen2"), options)  # type: ignore[assignment, arg-type]
    return wrapped


def adapted_inside() -> PreTrainedModel:
    model = tiny_model("qwen2")
    inject_adapter_in_model(LoraConfig(target_modules=["down_proj"], r=2), model)
    return model


def hooked() -> PreTrainedModel:
    model = tiny_model("llama")
    mlp: nn.Module = model.get_decoder().layers[0].mlp
    mlp.register_forward_hook(lambda _, args, output: output * 2)
    return model


def half_precision() -> PreTrainedModel:
    return tiny_model("llama").bfloat16()


@pytest.mark.parametrize("make", [other_architecture, adapted, adapted_inside, hooked, half_precision])
def test_other_models_run_their_own_code(make: Any) -> None:
    assert lean_forward(make()) is None


def test_every_policy_under_test_is_lean() -> None:
    """Else the tests of exact log-probs would say nothing about this pass."""
    assert all(lean_forward(tiny_model(kind)) is not None for kind in ("qwen2", "qwen3", "llama"))
