"""Continuations equal what the whole conversation's template writes; scripted policies speak alike."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from agents.types import GenerationRequest
from tests.trainer.generation import CHATML, byte_tokenizer
from trainer.generate.chat import ChatFormat
from trainer.generate.scripted import ScriptedPolicy
from trainer.rollout import generate_all
from trainer.tiny import build_tokenizer

# Drops a finished turn's reasoning once a user message follows, as Qwen3's template does.
FORGETFUL = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Puts a system message in front when there is none, and trims contents.
OPENING = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizers() -> list[PreTrainedTokenizerFast]:
    tiny = build_tokenizer(["You see a desk 1. go to desk 1, take the lamp from it"] * 3, 400)
    return [byte_tokenizer(CHATML), byte_tokenizer(FORGETFUL), byte_tokenizer(OPENING), tiny]


@pytest.mark.parametrize("tokenizer", tokenizers())
def test_prompt_completion_and_continuation_are_the_conversation(tokenizer: PreTrainedTokenizerFast) -> None:
    chat = ChatFormat(tokenizer)
    opening = [{"role": "user", "content": "You see a desk 1."}]
    more = [{"role": "user", "content": "The desk is empty."}]
    answer = "go to desk 1"
    completion = (*chat.plain_ids(answer), chat.end_of_turn)
    joined = chat.encode(opening) + completion + chat.encode_continuation(more)
    assert joined == chat.encode([*opening, {"role": "assistant", "content": answer}, *more])


def test_end_of_turn_is_the_templates_own() -> None:
    chat = ChatFormat(byte_tokenizer(), stop_ids=[200])
    assert chat.end_of_turn == 1
    assert chat.stop_ids == {1, 200}


@pytest.mark.parametrize(
    ("template", "complaint"),
    [(None, "no chat template"), ("{% for m in messages %}{{ m.content }}\n{% endfor %}", "turn is over")],
)
def test_unusable_templates_are_refused(template: str | None, complaint: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=complaint):
        ChatFormat(tokenizer)


def test_scripted_completion_has_the_texts_tokens_and_the_end_of_turn() -> None:
    seen: list[tuple[str, str]] = []

    def respond(request: GenerationRequest, prompt: str) -> str:
        seen.append((request.session, prompt))
        return "look"

    subject = ScriptedPolicy(byte_tokenizer(), respond)
    prompt = subject.encode([{"role": "user", "content": "hi"}])
    asked = GenerationRequest(prompt, "act", max_new_tokens=20, seed=0, session="e1")
    short = GenerationRequest(prompt, "act", max_new_tokens=2, seed=0, session="e2")
    whole, cut = generate_all(subject, [asked, short])
    assert whole.text == "look"
    assert whole.token_ids == (*subject.chat.plain_ids("look"), subject.end_of_turn)
    assert whole.finish_reason == "stop"
    assert (cut.text, cut.finish_reason) == ("lo", "length")
    assert seen[0] == ("e1", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
