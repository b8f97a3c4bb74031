"""Small models, a byte tokenizer with a ChatML template, and checks against a plain forward pass."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agents.types import Generation, GenerationRequest
from trainer.generate.hf import HFPolicy, Sampling

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ARCHITECTURES = ("qwen2", "qwen3", "llama")


def byte_tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    """One token a byte, and the ChatML marks."""
    specials = ["<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(specials + alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=template,
    )


def tiny_model(kind: str, seed: int = 0, context: int = 512) -> PreTrainedModel:
    """A random model whose next-token distribution is far from flat."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": 258,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "initializer_range": 0.15,
        "bos_token_id": None,
        "eos_token_id": 1,
    }
    if kind == "qwen2":
        model: PreTrainedModel = Qwen2ForCausalLM(Qwen2Config(**shape))
    elif kind == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=8))
    else:
        model = LlamaForCausalLM(LlamaConfig(**shape))
    # A random model seldom writes one certain token: many stop tokens make rows leave at all times.
    model.generation_config.eos_token_id = [1, *range(100, 120)]
    return model


def policy(kind: str = "qwen3", *, seed: int = 0, context: int = 512, **sampling: Any) -> HFPolicy:
    return HFPolicy(tiny_model(kind, seed, context), byte_tokenizer(), Sampling(**sampling))


def requests(count: int, *, seed: int = 0, siblings: int = 1, **fields: Any) -> list[GenerationRequest]:
    """Prompts and lengths of every size; ``siblings`` in a row share their prompt."""
    draws = random.Random(seed)
    made: list[GenerationRequest] = []
    for i in range(count):
        if i % siblings == 0:
            prompt = tuple(draws.choices(range(2, 258), k=draws.randint(1, 60)))
        options = {"max_new_tokens": draws.randint(1, 20), "session": f"episode {i}"} | fields
        made.append(GenerationRequest(prompt_ids=prompt, stage="act", seed=draws.getrandbits(60), **options))
    return made


@torch.no_grad()
def forward_logprobs(
    model: PreTrainedModel, request: GenerationRequest, generation: Generation, temperature: float
) -> list[float]:
    """Log-probs of a completion by one uncached forward pass, renormalised over the allowed tokens."""
    model.eval()
    ids = torch.tensor([request.prompt_ids + generation.token_ids])
    logits_TV = model(ids).logits[0].double() / (temperature or 1.0)
    allowed = generation.allowed or (None,) * len(generation.token_ids)
    found: list[float] = []
    for i, (token, limit) in enumerate(zip(generation.token_ids, allowed, strict=True)):
        row = logits_TV[len(request.prompt_ids) - 1 + i]
        kept = row if limit is None else row[list(limit)]
        found.append(float(row[token] - torch.logsumexp(kept, 0)))
    return found


def worst_gap(
    model: PreTrainedModel,
    asked: Sequence[GenerationRequest],
    got: Sequence[Generation],
    temperature: float = 1.0,
) -> float:
    """Largest difference between a sampler's log-prob and the forward pass's."""
    gaps = [
        abs(ours - plain)
        for request, generation in zip(asked, got, strict=True)
        for ours, plain in zip(
            generation.logprobs,
            forward_logprobs(model, request, generation, temperature),
            strict=True,
        )
    ]
    return max(gaps)
