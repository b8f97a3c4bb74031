"""A policy from a transformers causal LM in this process, on a CPU or a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from agents.types import Generation, GenerationRequest, Message, PromptTooLongError
from trainer.generate.chat import ChatFormat
from trainer.generate.choices import ChoiceTries
from trainer.generate.engine import Engine, Row
from trainer.generate.rendezvous import Rendezvous
from trainer.generate.sampling import Sampling

__all__ = ["HFPolicy", "Sampling"]


class HFPolicy:
    """Batches every waiting request into one model; implements `agents.types.Policy`.

    ``context_length`` defaults to the model's ``max_position_embeddings``. Set ``version`` after
    each change of the weights: cached prefixes are dropped then.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: Sampling,
        context_length: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.sampling = sampling
        self.context_length = context_length or int(model.config.max_position_embeddings)
        _require_full_attention(model, self.context_length)
        self.chat = ChatFormat(tokenizer, _eos_ids(model))
        self.rendezvous = Rendezvous()
        self._engine = Engine(
            model,
            sampling,
            context_length=self.context_length,
            stop_ids=self.chat.stop_ids,
            tries=ChoiceTries(self.chat.plain_ids, self.chat.end_of_turn),
            piece=self.chat.piece,
        )
        self._version = 0
        self._futures: dict[Row, asyncio.Future[Generation]] = {}
        self._driver: asyncio.Task[None] | None = None

    @property
    def version(self) -> int:
        """Number of the weights, raised by the trainer after each update."""
        return self._version

    @version.setter
    def version(self, value: int) -> None:
        self._version = value
        self.forget()

    def forget(self) -> None:
        """Drop cached prefixes, so that what follows does not hang on what came before."""
        self._engine.forget()

    @property
    def end_of_turn(self) -> int:
        """The token that ends an assistant turn."""
        return self.chat.end_of_turn

    @contextmanager
    def sampling_at(self, temperature: float) -> Iterator[None]:
        """Sample at another temperature for a while (0: greedy)."""
        usual = self.sampling
        self.sampling = self._engine.sampling = replace(usual, temperature=temperature)
        try:
            yield
        finally:
            self.sampling = self._engine.sampling = usual

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of a conversation through the chat template, ready for the assistant's turn."""
        return self.chat.encode(messages)

    def encode_continuation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids that follow the end-of-turn token; see `ChatFormat.encode_continuation`."""
        return self.chat.encode_continuation(messages)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample one completion, batched with all others that wait.

        ``finish_reason`` is ``stop`` (end-of-turn or end-of-sequence token written) or ``length``
        (``max_new_tokens`` reached, or the context is full).
        """
        self._check(request)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Generation] = loop.create_future()
        self._futures[self._engine.submit(request)] = future
        if self._driver is None or self._driver.done():
            self._driver = loop.create_task(self._drive())
        with self.rendezvous.waiting():
            return await future

    def _check(self, request: GenerationRequest) -> None:
        length = len(request.prompt_ids)
        if length == 0 or request.max_new_tokens < 1:
            raise ValueError(
                f"a request has {length} prompt tokens and max_new_tokens {request.max_new_tokens}; "
                "expected at least one of each"
            )
        if length >= self.context_length:
            raise PromptTooLongError(
                f"the {request.stage!r} prompt has {length} tokens, the policy's context holds "
                f"{self.context_length} including at least one new token; shorten the history or the memory "
                "shown, or raise policy.context_length"
            )

    async def _drive(self) -> None:
        try:
            with self._engine.running():
                await self._decode_all()
        except Exception as error:
            for future in self._futures.values():
                if not future.done():
                    future.set_exception(error)
            self._futures.clear()
            self._engine.abort()

    async def _decode_all(self) -> None:
        while self._engine.busy:
            await self.rendezvous.quiescent()
            for row in self._engine.step():
                future = self._futures.pop(row)
                if not future.done():
                    future.set_result(self._generation(row))

    def _generation(self, row: Row) -> Generation:
        limited = any(ids is not None for ids in row.allowed)
        return Generation(
            token_ids=tuple(row.completion),
            logprobs=tuple(row.logprobs),
            text=self.chat.text(row.completion),
            finish_reason=row.finish_reason,
            policy_version=self._version,
            allowed=tuple(row.allowed) if limited else None,
        )


def _eos_ids(model: PreTrainedModel) -> list[int]:
    declared = model.generation_config.eos_token_id if model.generation_config is not None else None
    if declared is None:
        return []
    return [int(declared)] if isinstance(declared, int) else [int(token) for token in declared]


def _require_full_attention(model: PreTrainedModel, context_length: int) -> None:
    layers = getattr(model.config, "layer_types", None) or []
    odd = sorted({kind for kind in layers if kind != "full_attention"})
    window = getattr(model.config, "sliding_window", None) or 0
    if odd and not (odd == ["sliding_attention"] and window >= context_length):
        raise ValueError(
            f"{type(model).__name__} has layers of type {odd} (window {window}), and the local policy "
            f"keeps full attention over {context_length} tokens; set policy.context_length to at most "
            "the window"
        )
