"""What an episode is made of: generations, turns, environment steps, trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from envs.base import AsyncTextEnv
from envs.types import StopReason, Task
from memory.errors import UserError
from memory.types import MemoryView

Message = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""

AllowedTokens = tuple[tuple[int, ...] | None, ...]
"""Per completion token: the token ids it was drawn from, or None for the whole vocabulary."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One completion asked of a policy.

    ``seed`` and a token's position fix that token's random draw, whatever else is in the batch.
    ``session`` names the episode, so that a cached prefix can be reused. ``choices`` are the only
    completions wanted, honoured when the policy runs with ``sampling.constrain``: the completion is
    free until ``choices_after`` has been written (empty: limited from its first token), then it is
    one of ``choices`` followed by ``choices_end`` (empty: the end of the turn).
    """

    prompt_ids: tuple[int, ...]
    stage: str
    max_new_tokens: int
    seed: int
    session: str = ""
    choices: tuple[str, ...] = ()
    choices_after: str = ""
    choices_end: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """A sampled completion.

    ``token_ids`` holds the tokens as sampled, the stop token included when ``finish_reason`` is
    ``stop``; ``logprobs`` are natural logs under the sampling distribution (temperature and allowed
    tokens applied), one per token. ``text`` has no special tokens.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: str
    policy_version: int
    allowed: AllowedTokens | None = None


class Policy(Protocol):
    """A language model that writes completions, local or remote."""

    version: int
    context_length: int

    @property
    def end_of_turn(self) -> int:
        """The token that ends an assistant turn."""
        ...

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a conversation through the chat template, ready for the assistant's turn."""
        ...

    def encode_continuation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids that follow a finished assistant turn when ``messages`` come next.

        Opens the next assistant turn, so ``prompt + completion + continuation`` is a prompt that
        keeps the sampled ids and lets the policy reuse its cache.
        """
        ...

    async def generate(self, request: GenerationRequest) -> Generation:
        """Sample one completion. A prompt over the context length: PromptTooLongError."""
        ...


class PromptTooLongError(UserError):
    """A prompt does not fit the policy's context together with one new token."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation by the policy inside an episode.

    ``stage`` is ``query``, ``reconstruct``, ``act``, ``write/core`` ...; ``step`` counts environment
    steps from 0. ``fault`` names a format fault of the output (None: well formed).
    """

    stage: str
    step: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    policy_version: int
    finish_reason: str
    allowed: AllowedTokens | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class EnvStep:
    """One action in the world. ``observation`` is what the agent saw before it acted."""

    step: int
    observation: str
    action: str
    reward: float
    valid: bool


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """A retrieval: what was asked, which entries came, what became of them."""

    step: int
    query: str
    entry_ids: tuple[str, ...]
    scores: tuple[float, ...]
    guidance: str | None
    """Text the act prompt got; None when the memory was rejected."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the episode ended for the task: ``score`` in the world's own unit, ``success`` as it defines it."""

    score: float
    success: bool


class Status(StrEnum):
    OK = "ok"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an episode could not be used. ``owner``: environment, policy, reward, memory or trainer.

    ``mendable``: the cause is a `memory.errors.UserError`, whose message says what the user can do.
    """

    owner: str
    kind: str
    message: str
    traceback: str = ""
    mendable: bool = False


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode as played: a variable number of turns, each with its own prompt."""

    trajectory_id: str
    task: Task
    turns: tuple[Turn, ...]
    steps: tuple[EnvStep, ...]
    outcome: Outcome
    stop_reason: StopReason
    memory_reads: tuple[MemoryRead, ...] = ()
    status: Status = Status.OK
    failure: Failure | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


class Agent(Protocol):
    """Plays one episode. Reads like its paper's algorithm box; never sees batching."""

    async def run(
        self, task: Task, env: AsyncTextEnv, memory: MemoryView, policy: Policy, episode: Episode
    ) -> Trajectory: ...


@dataclass(frozen=True, slots=True)
class Episode:
    """Identity of one rollout: which trajectory this is and the seed of all its draws."""

    trajectory_id: str
    seed: int
