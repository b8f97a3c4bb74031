"""MemHarness (section 3.2): retrieve, reconstruct for the present state, act. All stages are trained."""

from __future__ import annotations

from agents.episode import Conversation, EpisodeLog, act, recent, task_text
from agents.parsing import read_answer
from agents.prompts import load_prompts
from agents.types import Episode, MemoryRead, Policy, PromptTooLongError, Trajectory
from envs.base import AsyncTextEnv
from envs.types import Observation, StopReason, Task
from memory.types import MemoryView

QUERY_MODES = ("policy", "always", "first_step", "never")


class MemHarness:
    """Query, reconstruct and act with one set of weights.

    ``query``: ``policy`` asks the policy at every step whether to consult the memory, ``always`` and
    ``first_step`` consult it there whatever the query says, ``never`` plays without memory.
    ``history`` is the number of past steps a fresh prompt shows; a growing prompt set shows all.
    ``max_new_tokens`` limits each completion.
    """

    def __init__(
        self,
        prompts: str = "memharness",
        query: str = "policy",
        top_k: int = 3,
        history: int = 2,
        max_steps: int = 50,
        max_new_tokens: int = 512,
    ) -> None:
        if query not in QUERY_MODES:
            raise ValueError(f"agent.query={query!r}: expected one of {', '.join(QUERY_MODES)}.")
        self.prompts = load_prompts(prompts)
        self.query = query
        self.top_k = top_k
        self.history = history
        self.max_steps = max_steps
        self.max_new_tokens = max_new_tokens

    async def run(
        self, task: Task, env: AsyncTextEnv, memory: MemoryView, policy: Policy, episode: Episode
    ) -> Trajectory:
        """Play one episode: at each step the algorithm box of section 3.2."""
        log = EpisodeLog(task, episode, policy)
        conversation = Conversation(policy, self.prompts.system(), self.prompts.growing)
        observation = await env.reset(task)
        goal = log.goal = task_text(observation)
        while len(log.steps) < self.max_steps:
            try:
                consulted, guidance = await self._consult(log, conversation, memory, goal, observation)
                action = await self._act(log, conversation, goal, observation, consulted, guidance)
            except PromptTooLongError:
                if not log.steps:
                    raise
                return log.trajectory(StopReason.CONTEXT_LIMIT)
            result = await env.step(action)
            log.acted(observation, action, result)
            if result.done:
                return log.trajectory(StopReason.SUCCESS if result.success else StopReason.FAILURE)
            observation = result.observation
        return log.trajectory(StopReason.STEP_LIMIT)

    async def _consult(
        self,
        log: EpisodeLog,
        conversation: Conversation,
        memory: MemoryView,
        goal: str,
        observation: Observation,
    ) -> tuple[bool, str | None]:
        """Stages query and reconstruct: (was the memory consulted, guidance or None when rejected).

        Both happen on a branch of the conversation: what the memory said word for word is never in
        the act prompt, only what reconstruction made of it.
        """
        if self.query == "never" or (self.query == "first_step" and log.steps):
            return False, None
        branch = conversation.branch()
        values = self._state(log, goal, observation)

        query = await self._ask(log, branch, "query", self.prompts.render("query", **values))
        if query is None and self.query == "policy":
            return False, None
        query = query or goal

        retrieved = memory.retrieve(query, self.top_k)
        guidance = None
        if retrieved:
            text = self.prompts.render("reconstruct", retrieved=retrieved, **values)
            guidance = await self._ask(log, branch, "reconstruct", text, tag="guidance")
        log.reads.append(
            MemoryRead(
                step=len(log.steps),
                query=query,
                entry_ids=tuple(found.entry.entry_id for found in retrieved),
                scores=tuple(found.score for found in retrieved),
                guidance=guidance,
            )
        )
        return True, guidance

    async def _ask(
        self, log: EpisodeLog, branch: Conversation, stage: str, text: str, tag: str | None = None
    ) -> str | None:
        """One free-text stage; None when the policy declined or wrote nothing usable."""
        prompt_ids = branch.prompt(text)
        generation = await log.generate(stage, prompt_ids, self.max_new_tokens)
        branch.answered(prompt_ids, generation)
        answer = read_answer(generation.text, tag or stage, self.prompts.output, generation.finish_reason)
        if answer.fault:
            log.fault(answer.fault)
        return None if answer.declined else answer.text

    async def _act(
        self,
        log: EpisodeLog,
        conversation: Conversation,
        goal: str,
        observation: Observation,
        consulted: bool,
        guidance: str | None,
    ) -> str:
        """Stage act: the command for the world, empty (refused there) when the output was malformed."""
        values = self._state(log, goal, observation)
        text = self.prompts.render("act", consulted=consulted, guidance=guidance, **values)
        return await act(log, conversation, text, self.prompts.output, observation, self.max_new_tokens)

    def _state(self, log: EpisodeLog, goal: str, observation: Observation) -> dict[str, object]:
        return {
            "task": goal,
            "step": len(log.steps),
            "history": recent(log.steps, self.history),
            "observation": observation.text,
            "admissible": observation.admissible,
        }
