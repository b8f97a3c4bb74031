"""The embedded tiny policy: a causal LM of about a million parameters and its tokenizer, from nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from envs.base import World
from envs.household.vocabulary import household_sentences

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"

# One special token opens a message, so that a turn costs three tokens beside its text.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}" + ASSISTANT + "{{ message.content }}" + END + ""
    "{% else %}" + USER + "{{ message.content }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + ASSISTANT + "{% endif %}"
)
