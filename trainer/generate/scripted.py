"""A policy whose completions a Python function writes: experts for demonstrations, and tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from agents.types import Generation, GenerationRequest, Message, PromptTooLongError
from trainer.generate.chat import ChatFormat

Respond = Callable[[GenerationRequest, str], str]
"""``(request, prompt text) -> completion text``; ``request.session`` names the episode."""


class ScriptedPolicy:
    """Answers with ``respond(request, prompt_text)``; implements `agents.types.Policy`.

    A completion is the text's tokens and the end-of-turn token, each with log-prob 0.0 (it was not
    drawn from a distribution); one over ``max_new_tokens`` is cut and ends by ``length``.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, respond: Respond, context_length: int = 1 << 20
    ) -> None:
        self.version = 0
        self.context_length = context_length
        self.chat = ChatFormat(tokenizer)
        self._tokenizer = tokenizer
        self._respond = respond

    @property
    def end_of_turn(self) -> int:
        """The token that ends an assistant turn."""
        return self.chat.end_of_turn

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of a conversation through the chat template, ready for the assistant's turn."""
        return self.chat.encode(messages)

    def encode_continuation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids that follow the end-of-turn token; see `ChatFormat.encode_continuation`."""
        return self.chat.encode_continuation(messages)

    async def generate(self, request: GenerationRequest) -> Generation:
        """The scripted completion of one prompt."""
        if len(request.prompt_ids) >= self.context_length:
            raise PromptTooLongError(
                f"the {request.stage!r} prompt has {len(request.prompt_ids)} tokens, the policy's context "
                f"holds {self.context_length} including at least one new token; shorten the history"
            )
        prompt = str(self._tokenizer.decode(list(request.prompt_ids), skip_special_tokens=False))
        text = self._respond(request, prompt)
        ids = (*self.chat.plain_ids(text), self.chat.end_of_turn)
        room = min(request.max_new_tokens, self.context_length - len(request.prompt_ids))
        finish_reason = "stop" if len(ids) <= room else "length"
        ids = ids[:room]
        return Generation(
            token_ids=ids,
            logprobs=(0.0,) * len(ids),
            text=self.chat.text(ids),
            finish_reason=finish_reason,
            policy_version=self.version,
        )
