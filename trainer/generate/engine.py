"""Continuous batching: rows enter, take one step of decoding together, and leave when they stop.

One forward pass carries all rows packed without padding: whole prompts of new rows, what is new in
the prompt of a continued session, and one token of every row that is decoding. Everything a step
does follows from the requests alone, so the same requests give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agents.types import GenerationRequest
from trainer.generate.attention import Pack, plan, slot_attention_of
from trainer.generate.choices import ChoiceTries, Constraint
from trainer.generate.kv import SlotCache, SlotTable, common_prefix
from trainer.generate.lean import LeanForward, lean_forward
from trainer.generate.sampling import Sampling, draw, uniforms

TOKENS_PER_PASS = 2048
"""Most prompt tokens in one forward pass; more would leave the CPU's caches."""


@dataclass(slots=True, eq=False)
class Row:
    """A request while it is served: ``tokens`` is prompt plus completion, its slot holds ``cached``."""

    request: GenerationRequest
    limit: int
    tokens: list[int]
    constraint: Constraint | None = None
    slot: int = -1
    cached: int = 0
    copy_from: int | None = None
    logprobs: list[float] = field(default_factory=list)
    allowed: list[tuple[int, ...] | None] = field(default_factory=list)
    finish_reason: str = ""

    @property
    def completion(self) -> list[int]:
        return self.tokens[len(self.request.prompt_ids) :]

    @property
    def pending(self) -> int:
        """Tokens not yet in the cache."""
        return len(self.tokens) - self.cached


class Engine:
    """Decodes requests of one model; synchronous, driven by `step`."""

    def __init__(
        self,
        model: PreTrainedModel,
        sampling: Sampling,
        *,
        context_length: int,
        stop_ids: frozenset[int],
        tries: ChoiceTries,
        piece: Callable[[int], str],
    ) -> None:
        self._model = model
        self.sampling = sampling
        self._stop_ids = stop_ids
        self._tries = tries
        self._piece = piece
        self._context_length = context_length
        self._cache = SlotCache(context_length, sampling.max_batch)
        self._table = SlotTable(self._cache)
        self._waiting: list[Row] = []
        self._active: list[Row] = []
        self._lean: LeanForward | None = None
        self._read_weights = True

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._active)

    def submit(self, request: GenerationRequest) -> Row:
        """Queue a request whose prompt fits the context."""
        room = self._context_length - len(request.prompt_ids)
        row = Row(request, min(request.max_new_tokens, room), list(request.prompt_ids))
        if self.sampling.constrain and request.choices:
            row.constraint = Constraint(request, self._tries, self._piece)
        self._waiting.append(row)
        return row

    def forget(self) -> None:
        """Drop every cached prefix, because the weights have changed."""
        if self._active:
            raise RuntimeError(
                f"the policy's version changed while {len(self._active)} completions were being decoded; "
                "update the weights between rollouts"
            )
        self._table.clear()
        self._lean = None
        self._read_weights = True

    def running(self) -> AbstractContextManager[None]:
        """Wrap all steps in this; it readies the model for decoding and restores it."""
        return slot_attention_of(self._model)

    def abort(self) -> None:
        """Drop all rows and caches after a step that failed."""
        self._waiting.clear()
        self._active.clear()
        self._table.clear()

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Admit waiting rows, write at least one token in every row, return the rows that finished."""
        self._close_gaps()
        newcomers = self._admit()
        self._active.extend(newcomers)
        self._fill_shared(newcomers)
        for rows in self._passes(self._active):
            self._decode(rows)
        finished = [row for row in self._active if row.finish_reason]
        self._active = [row for row in self._active if not row.finish_reason]
        for row in finished:
            self._table.give_back(row.slot, row.request.session, row.tokens[: row.cached])
        return finished

    def _admit(self) -> list[Row]:
        # Arrival order may hang on the speed of an environment; this order never does.
        self._waiting.sort(key=lambda row: (row.request.session, row.request.seed))
        room = self.sampling.max_batch - len(self._active)
        newcomers, self._waiting = self._waiting[:room], self._waiting[room:]
        if newcomers:
            self._cache.reserve(max(len(row.request.prompt_ids) + row.limit for row in newcomers))
        fresh: set[int] = set()
        for row in newcomers:
            prompt = row.request.prompt_ids
            row.slot = self._table.take(row.request.session)
            row.cached = min(common_prefix(self._table.tokens[row.slot], prompt), len(prompt) - 1)
            twin = self._table.twin(prompt)
            if twin in fresh and row.cached < len(prompt) - 1:
                row.copy_from = twin
            elif twin is not None and twin not in fresh:
                self._copy_prompt(row, twin)
            self._table.holds(row.slot, prompt)
            fresh.add(row.slot)
        return newcomers

    def _close_gaps(self) -> None:
        """Move rows into free slots below them, so that neighbours share a call of attention."""
        for row in sorted(self._active, key=lambda row: -row.slot):
            target = self._table.move_down(row.slot)
            if target is None:
                return
            self._cache.copy(row.slot, target, row.cached)
            row.slot = target

    def _fill_shared(self, newcomers: Sequence[Row]) -> None:
        """Prefill once each prompt that several newcomers have, then copy it."""
        sources = {row.copy_from for row in newcomers}
        rows = [row for row in newcomers if row.slot in sources and row.pending > 1]
        for group in self._passes(rows):
            self._forward([(row, len(row.tokens) - 1) for row in group], [])
            for row in group:
                row.cached = len(row.tokens) - 1
        for row in newcomers:
            if row.copy_from is not None:
                self._copy_prompt(row, row.copy_from)

    def _copy_prompt(self, row: Row, source: int) -> None:
        """All of the prompt but its last token, which the row's first step needs for its logits."""
        row.cached = len(row.request.prompt_ids) - 1
        self._cache.copy(source, row.slot, row.cached)

    def _passes(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Rows in order of their slots, those with one token first, cut by the token budget."""
        groups: list[list[Row]] = []
        tokens = TOKENS_PER_PASS
        for row in sorted(rows, key=lambda row: (row.pending > 1, row.slot)):
            if tokens + row.pending > TOKENS_PER_PASS:
                groups.append([])
                tokens = 0
            groups[-1].append(row)
            tokens += row.pending
        return groups

    def _forward(self, rows: Sequence[tuple[Row, int]], keep: list[int]) -> Tensor:
        """Logits (len(keep), V) at the pack's positions ``keep``; each row runs up to token ``end``."""
        device = self._model.device
        ids: list[int] = []
        slots: list[int] = []
        positions: list[int] = []
        for row, end in rows:
            ids.extend(row.tokens[row.cached : end])
            slots.extend([row.slot] * (end - row.cached))
            positions.extend(range(row.cached, end))
        spans = [(row.slot, row.cached, end) for row, end in rows]
        pack = Pack(
            cache=self._cache,
            slot_N=torch.tensor(slots, device=device),
            position_N=torch.tensor(positions, device=device),
            pieces=plan(spans, self._model.dtype, device),
        )
        keep_B = torch.tensor(keep, dtype=torch.long, device=device)
        return self._logits(torch.tensor(ids, device=device), pack, keep_B)

    def _logits(self, ids_N: Tensor, pack: Pack, keep_B: Tensor) -> Tensor:
        if self._read_weights:
            self._lean = lean_forward(self._model)
            self._read_weights = False
        if self._lean is not None:
            return self._lean(ids_N, pack, keep_B)
        output = self._model(
            input_ids=ids_N[None],
            position_ids=pack.position_N[None],
            use_cache=False,
            logits_to_keep=keep_B,
            slots=pack,
        )
        logits_BV: Tensor = output.logits[0]
        return logits_BV

    def _decode(self, rows: Sequence[Row]) -> None:
        keep: list[int] = []
        offset = -1
        for row in rows:
            offset += row.pending
            keep.append(offset)
        logits_BV = self._forward([(row, len(row.tokens)) for row in rows], keep)
        positions = [len(row.logprobs) for row in rows]
        uniform_B = uniforms([row.request.seed for row in rows], positions)
        allowed = [row.constraint.allowed if row.constraint else None for row in rows]
        tokens, logprobs = draw(logits_BV, uniform_B, allowed, self.sampling.temperature)
        for row, token, logprob, limit in zip(rows, tokens, logprobs, allowed, strict=True):
            row.cached = len(row.tokens)
            self._write(row, token, logprob, limit)
            self._write_forced(row)

    def _write(self, row: Row, token: int, logprob: float, allowed: tuple[int, ...] | None) -> None:
        row.tokens.append(token)
        row.logprobs.append(logprob)
        row.allowed.append(allowed)
        if row.constraint:
            row.constraint.advance(token)
        if token in self._stop_ids:
            row.finish_reason = "stop"
        elif len(row.logprobs) >= row.limit:
            row.finish_reason = "length"

    def _write_forced(self, row: Row) -> None:
        """Write tokens that have no alternative at once: their probability is 1, no draw is needed."""
        while row.constraint and not row.finish_reason:
            allowed = row.constraint.allowed
            if allowed is None or len(allowed) > 1:
                return
            self._write(row, allowed[0], 0.0, allowed)
