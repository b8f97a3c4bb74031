"""Bookkeeping of one episode, so that an agent's code holds only its algorithm."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agents.parsing import read_answer
from agents.types import (
    EnvStep,
    Episode,
    Generation,
    GenerationRequest,
    MemoryRead,
    Message,
    Outcome,
    Policy,
    Trajectory,
    Turn,
)
from envs.types import Observation, StepResult, StopReason, Task


def turn_seed(episode_seed: int, turn: int) -> int:
    """Seed of one generation: a hash, so that neighbouring episodes share no random draws."""
    digest = hashlib.blake2b(f"{episode_seed}:{turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class EpisodeLog:
    """Collects turns, steps and memory reads, and makes the trajectory of them."""

    task: Task
    episode: Episode
    policy: Policy
    turns: list[Turn] = field(default_factory=list)
    steps: list[EnvStep] = field(default_factory=list)
    reads: list[MemoryRead] = field(default_factory=list)
    score: float = 0.0
    success: bool = False
    goal: str = ""
    progress: list[float] = field(default_factory=list)

    async def generate(
        self,
        stage: str,
        prompt_ids: tuple[int, ...],
        max_new_tokens: int,
        choices: tuple[str, ...] = (),
        choices_after: str = "",
        choices_end: str = "",
    ) -> Generation:
        """One completion of the policy, kept as a turn of the present step."""
        generation = await self.policy.generate(
            GenerationRequest(
                prompt_ids=prompt_ids,
                stage=stage,
                max_new_tokens=max_new_tokens,
                seed=turn_seed(self.episode.seed, len(self.turns)),
                session=self.episode.trajectory_id,
                choices=choices,
                choices_after=choices_after,
                choices_end=choices_end,
            )
        )
        self.turns.append(
            Turn(
                stage=stage,
                step=len(self.steps),
                prompt_ids=prompt_ids,
                completion_ids=generation.token_ids,
                logprobs=generation.logprobs,
                text=generation.text,
                policy_version=generation.policy_version,
                finish_reason=generation.finish_reason,
                allowed=generation.allowed,
            )
        )
        return generation

    def fault(self, reason: str) -> None:
        """Mark the last turn as malformed; the episode goes on."""
        self.turns[-1] = replace(self.turns[-1], fault=reason)

    def acted(self, observation: Observation, action: str, result: StepResult) -> None:
        """Keep one environment step and what it earned."""
        self.steps.append(
            EnvStep(
                step=len(self.steps),
                observation=observation.text,
                action=action,
                reward=result.reward,
                valid=result.valid,
            )
        )
        self.score += result.reward
        self.success = result.success
        if "progress" in result.info:
            self.progress.append(float(result.info["progress"]))

    def trajectory(self, stop_reason: StopReason) -> Trajectory:
        """The episode as played."""
        return Trajectory(
            trajectory_id=self.episode.trajectory_id,
            task=self.task,
            turns=tuple(self.turns),
            steps=tuple(self.steps),
            outcome=Outcome(score=self.score, success=self.success),
            stop_reason=stop_reason,
            memory_reads=tuple(self.reads),
            info={"goal": self.goal, "progress": tuple(self.progress)},
        )


class Conversation:
    """Prompts of one episode: one growing conversation, or a fresh prompt each time.

    ``branch`` forks a growing conversation for a side question whose text must not stay in it.
    Sampled token ids are kept as they are, never tokenised again.
    """

    def __init__(self, policy: Policy, system: str | None, growing: bool) -> None:
        self._policy = policy
        self._growing = growing
        self._opening: list[Message] = [{"role": "system", "content": system}] if system else []
        self._ids: tuple[int, ...] = ()

    def prompt(self, text: str) -> tuple[int, ...]:
        """Prompt ids that end ready for the assistant's answer to ``text``."""
        message: Message = {"role": "user", "content": text}
        if not self._ids:
            return self._policy.encode([*self._opening, message])
        return self._ids + self._policy.encode_continuation([message])

    def answered(self, prompt_ids: tuple[int, ...], generation: Generation) -> None:
        """Let the conversation go on after this answer (a fresh-prompt conversation forgets it)."""
        if self._growing:
            # A completion cut off by its limit lacks the token that a continuation follows.
            end = () if generation.finish_reason == "stop" else (self._policy.end_of_turn,)
            self._ids = prompt_ids + generation.token_ids + end

    def branch(self) -> Conversation:
        """A copy that can go on without the original noticing."""
        copy = Conversation(self._policy, None, self._growing)
        copy._opening, copy._ids = self._opening, self._ids
        return copy


def task_text(observation: Observation) -> str:
    """The goal as the world states it: its own field, else the whole first observation."""
    return str(observation.info.get("goal", observation.text))


def recent(steps: Sequence[EnvStep], history: int) -> Sequence[EnvStep]:
    """The last ``history`` steps."""
    return steps[-history:] if history else ()


async def act(
    log: EpisodeLog,
    conversation: Conversation,
    text: str,
    output: str,
    observation: Observation,
    max_new_tokens: int,
) -> str:
    """Ask for one action, limited to the admissible commands where the policy constrains sampling."""
    tagged = output == "tagged"
    prompt_ids = conversation.prompt(text)
    generation = await log.generate(
        "act",
        prompt_ids,
        max_new_tokens,
        choices=observation.admissible,
        choices_after="<action>" if tagged else "",
        choices_end="</action>" if tagged else "",
    )
    conversation.answered(prompt_ids, generation)
    answer = read_answer(generation.text, "action", output, generation.finish_reason)
    if answer.fault:
        log.fault(answer.fault)
    return answer.text or ""
