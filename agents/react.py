"""ReAct: one completion a step, no memory. The baseline of every memory agent."""

from __future__ import annotations

from agents.episode import Conversation, EpisodeLog, act, recent, task_text
from agents.prompts import load_prompts
from agents.types import Episode, Policy, PromptTooLongError, Trajectory
from envs.base import AsyncTextEnv
from envs.types import StopReason, Task
from memory.types import MemoryView


class React:
    """Thought and action at each step (Yao et al. 2023).

    ``history`` is the number of past steps a fresh prompt shows; a growing prompt set shows all.
    """

    def __init__(
        self, prompts: str = "react", history: int = 2, max_steps: int = 50, max_new_tokens: int = 512
    ) -> None:
        self.prompts = load_prompts(prompts)
        self.history = history
        self.max_steps = max_steps
        self.max_new_tokens = max_new_tokens

    async def run(
        self, task: Task, env: AsyncTextEnv, memory: MemoryView, policy: Policy, episode: Episode
    ) -> Trajectory:
        """Play one episode; ``memory`` is not read."""
        log = EpisodeLog(task, episode, policy)
        conversation = Conversation(policy, self.prompts.system(), self.prompts.growing)
        observation = await env.reset(task)
        goal = log.goal = task_text(observation)
        while len(log.steps) < self.max_steps:
            text = self.prompts.render(
                "act",
                task=goal,
                step=len(log.steps),
                history=recent(log.steps, self.history),
                observation=observation.text,
                admissible=observation.admissible,
            )
            try:
                action = await act(
                    log, conversation, text, self.prompts.output, observation, self.max_new_tokens
                )
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
