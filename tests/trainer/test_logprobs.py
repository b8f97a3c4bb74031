"""Log-probs of trained tokens against the plain forward pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import trainer.logprobs
from tests.trainer.make import random_samples
from trainer.logprobs import Reference, UnsupportedHeadError, check_head, token_logprobs
from trainer.samples import MicroBatch, micro_batches, pad_count

SIZE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZE)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZE)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZE, tie_word_embeddings=True)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SIZE, final_logit_softcapping=0.5)),
    "granite": lambda: GraniteForCausalLM(GraniteConfig(**SIZE, logits_scaling=4.0)),
}


def make(name: str = "qwen2") -> Any:
    torch.manual_seed(0)
    return MODELS[name]()


def lora(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    wrapped = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj", "lm_head"]))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    return wrapped


def one_batch(seed: int = 0) -> MicroBatch:
    return micro_batches(random_samples(seed, 6), max_tokens=10_000)[0]


def plain(model: Any, batch: MicroBatch, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Row by row without padding, every position scored, the limit applied as a mask on the logits."""
    logprobs_BT, entropy_BT = torch.zeros(batch.input_ids_BT.shape), torch.zeros(batch.input_ids_BT.shape)
    assert batch.limited_N is not None
    assert batch.allowed_MK is not None
    limited, allowed = iter(batch.limited_N.tolist()), iter(batch.allowed_MK.tolist())
    for b in range(len(batch.rows)):
        logits = model(input_ids=batch.input_ids_BT[b : b + 1]).logits[0] / temperature
        for t in batch.loss_mask_BT[b].nonzero()[:, 0].tolist():
            scores = logits[t - 1]
            if next(limited):
                keep = [i for i in next(allowed) if i >= 0]
                scores = torch.full_like(scores, -torch.inf).index_put((torch.tensor(keep),), scores[keep])
            distribution = torch.distributions.Categorical(logits=scores)
            logprobs_BT[b, t] = distribution.log_prob(batch.input_ids_BT[b, t])
            entropy_BT[b, t] = distribution.entropy()
    return logprobs_BT, entropy_BT


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_equals_the_plain_forward(name: str, adapter: bool) -> None:
    model = lora(make(name)) if adapter else make(name)
    model.eval()
    check_head(model)
    batch = one_batch()
    ours, entropy = token_logprobs(model, batch, temperature=0.7)
    expected, expected_entropy = plain(model, batch, 0.7)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy, expected_entropy, atol=1e-5, rtol=0)
    assert not entropy.requires_grad


def test_gradient_equals_the_plain_forward_in_one_piece_and_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make()
    batch = one_batch()

    def gradient(logprobs_BT: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        (logprobs_BT * torch.arange(logprobs_BT.numel()).view_as(logprobs_BT)).mean().backward()
        return torch.cat([p.grad.reshape(-1) for p in model.parameters()])

    expected = gradient(plain(model, batch, 1.0)[0])
    torch.testing.assert_close(gradient(token_logprobs(model, batch)[0]), expected, atol=1e-5, rtol=1e-4)
    monkeypatch.setattr(trainer.logprobs, "LOGITS_PER_CHUNK", 61 * 7)
    torch.testing.assert_close(gradient(token_logprobs(model, batch)[0]), expected, atol=1e-5, rtol=1e-4)


def test_head_runs_at_trained_positions_only() -> None:
    model = make()
    seen: list[int] = []
    model.lm_head.register_forward_hook(lambda _, args, __: seen.append(args[0].numel() // 32))
    batch = one_batch()
    token_logprobs(model, batch)
    assert seen == [int(batch.loss_mask_BT.sum())]


def test_only_allowed_token_is_certain() -> None:
    sample = random_samples(0, 1)[0]
    forced = replace(sample, allowed=tuple((token,) for token in sample.input_ids))
    logprobs_BT, entropy_BT = token_logprobs(make(), micro_batches([forced], 100)[0])
    torch.testing.assert_close(logprobs_BT, torch.zeros_like(logprobs_BT), atol=1e-6, rtol=0)
    assert not entropy_BT.any()


def test_masked_batch_has_zero_gradient_everywhere_on_the_path() -> None:
    model = make()
    logprobs_BT, _ = token_logprobs(model, pad_count([], 1)[0])
    logprobs_BT.sum().backward()
    assert model.lm_head.weight.grad is not None
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


def test_temperature_must_be_positive() -> None:
    with pytest.raises(ValueError, match="temperature is 0"):
        token_logprobs(make(), one_batch(), temperature=0)


def test_unknown_rule_after_the_head_is_refused() -> None:
    model = make("gemma2")
    forward = model.forward

    def doubled(**kwargs: Any) -> Any:
        output = forward(**kwargs)
        output.logits = output.logits * 2
        return output

    model.forward = doubled
    with pytest.raises(UnsupportedHeadError, match="Gemma2ForCausalLM changes its logits"):
        check_head(model)


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_reference_stays_where_it_was(adapter: bool) -> None:
    model = make()
    batch = one_batch()
    before = token_logprobs(model, batch)[0].detach()
    if adapter:
        model = lora(model)
    reference = Reference(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    torch.testing.assert_close(reference.logprobs(batch, 1.0), before, atol=1e-6, rtol=0)
    assert (token_logprobs(model, batch)[0] - before).abs().max() > 1e-2
    assert model.training
    resumed = Reference(model)
    resumed.load_state_dict(reference.state_dict())
    assert torch.equal(resumed.logprobs(batch, 1.0), reference.logprobs(batch, 1.0))
