"""Conversations to token ids and back through a tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from agents.types import Message

_SENTINEL = "5c0ff1e7"
"""Stands for a finished assistant turn; no template or tokenizer gives it a meaning."""


class ChatFormat:
    """Encodes prompts and what follows a finished turn; knows the tokens that end one.

    ``stop_ids`` end a completion; ``end_of_turn`` is the one the template writes.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int] = ()) -> None:
        if not tokenizer.chat_template:
            raise ValueError(
                f"tokenizer {tokenizer.name_or_path!r} has no chat template; agents speak in messages, "
                "so set tokenizer.chat_template or take an instruction-tuned model"
            )
        self._tokenizer = tokenizer
        known = set(stop_ids)
        if tokenizer.eos_token_id is not None:
            known.add(int(tokenizer.eos_token_id))
        rest = self._after_turn(())
        self.end_of_turn = self._leading_special(rest, known)
        self._end_text = self._decode([self.end_of_turn])
        self.stop_ids = frozenset(known | {self.end_of_turn})
        self._pieces: dict[int, str] = {}
        self._anchor = tokenizer.encode("a", add_special_tokens=False)

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of a conversation that opens the assistant's turn."""
        return self._ids(self._render(messages, open_turn=True))

    def encode_continuation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids behind the end-of-turn token of an assistant turn when ``messages`` come next.

        The template renders a whole conversation with a placeholder for the turn, and what it
        writes behind the placeholder's end of turn is the continuation. A completion that ended by
        ``length`` has no end-of-turn token: append `end_of_turn` before the continuation.
        """
        rest = self._after_turn(messages).lstrip(" ")
        if not rest.startswith(self._end_text):
            raise ValueError(
                f"the chat template writes {rest[:40]!r} behind an assistant turn; expected "
                f"{self._end_text!r}. Its turns cannot be continued token by token: use prompts that start "
                "afresh each time"
            )
        return self._ids(rest[len(self._end_text) :])

    def text(self, ids: Sequence[int]) -> str:
        """Text of a completion without special tokens."""
        return self._decode(ids, skip_special_tokens=True)

    def plain_ids(self, text: str) -> tuple[int, ...]:
        """Ids of text as it stands, no special tokens added."""
        return self._ids(text)

    def piece(self, token: int) -> str:
        """What one token adds to a text it is not the first of."""
        piece = self._pieces.get(token)
        if piece is None:
            # Some tokenizers drop the space of a first token, hence the anchor in front.
            whole = self._decode([*self._anchor, token])
            piece = whole[len(self._decode(self._anchor)) :]
            self._pieces[token] = piece
        return piece

    def _after_turn(self, messages: Sequence[Message]) -> str:
        conversation = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": _SENTINEL},
            *messages,
        ]
        text = self._render(conversation, open_turn=bool(messages))
        return text[text.rindex(_SENTINEL) + len(_SENTINEL) :]

    def _leading_special(self, rest: str, known: set[int]) -> int:
        """The end-of-turn token, found at the head of what the template writes behind a turn."""
        ids = self._ids(rest.lstrip(" "))
        if ids and (ids[0] in known or ids[0] in self._tokenizer.all_special_ids):
            return ids[0]
        raise ValueError(
            f"the chat template of {self._tokenizer.name_or_path!r} ends an assistant turn with {rest!r}; "
            "expected a special token that says the turn is over, for example '<|im_end|>'"
        )

    def _render(self, messages: Sequence[Message], *, open_turn: bool) -> str:
        text: Any = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=open_turn
        )
        return str(text)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )
        return str(text)
