"""The embedded tiny policy: a causal LM of about a million parameters and its tokenizer, from nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

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


def load_tiny(
    world: World,
    seed: int,
    *,
    hidden_size: int = 128,
    layers: int = 4,
    heads: int = 4,
    kv_heads: int = 2,
    context_length: int = 1024,
    vocab_size: int = 1024,
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A model with random weights and a tokenizer that knows ALFWorld's words and those of ``world``.

    The tokenizer depends on the words alone, not on ``seed``: policies of one world share it.
    """
    tokenizer = build_tokenizer([*household_sentences(), *played_sentences(world)], vocab_size)
    model = build_model(
        tokenizer,
        hidden_size=hidden_size,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        context_length=context_length,
        seed=seed,
    )
    return model, tokenizer


def played_sentences(world: World, episodes: int = 24) -> Iterator[str]:
    """What ``world`` says and accepts while its first training tasks are won."""
    env = world.make_env()
    for task in world.tasks("train")[:episodes]:
        observation = env.reset(task)
        yield observation.text
        for action in env.gold(task):
            yield from (action, *observation.admissible)
            observation = env.step(action).observation
            yield observation.text
    env.close()


def build_tokenizer(texts: Iterable[str], vocab_size: int = 1024) -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on ``texts``: any string encodes, the same texts give the same tokenizer."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, USER, ASSISTANT, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden_size: int,
    layers: int,
    heads: int,
    kv_heads: int = 2,
    context_length: int,
    seed: int,
) -> LlamaForCausalLM:
    """A Llama-type model with random weights fixed by ``seed``, in float32."""
    for name, value, divisor, size in (
        ("hidden_size", hidden_size, "heads", heads),
        ("heads", heads, "kv_heads", kv_heads),
    ):
        if value % size:
            raise ValueError(
                f"{name}={value} is not divisible by {divisor}={size}; choose a multiple of {size}"
            )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden_size // heads,
        max_position_embeddings=context_length,
        tie_word_embeddings=True,
        # The usual 0.02 suits widths of thousands; at this width it doubles the tokens that learning takes.
        initializer_range=hidden_size**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    generator_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    torch.random.set_rng_state(generator_state)
    return model
