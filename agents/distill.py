"""Turn finished trajectories into proposals for the memory bank (MemHarness section 3.1)."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agents.episode import turn_seed
from agents.prompts import load_prompts
from agents.types import GenerationRequest, Policy, Status, Trajectory
from memory.types import NewEntry


@dataclass(frozen=True, slots=True)
class Distilled:
    """An entry, or the reason why there is none."""

    entry: NewEntry | None
    fault: str | None = None


class Distiller(Protocol):
    """Writes down what one trajectory teaches."""

    async def distill(self, trajectory: Trajectory, policy: Policy, seed: int) -> Distilled: ...


def choose_trajectories(
    groups: Sequence[Sequence[Trajectory]], share: float, seed: int
) -> list[Trajectory]:
    """One trajectory from each of a ``share`` of the groups, won and lost ones in turn.

    Where a group has no trajectory of the wanted kind, one of the other kind stands in.
    """
    draw = random.Random(seed)
    wanted_count = round(share * len(groups))
    chosen: list[Trajectory] = []
    for group in draw.sample(list(groups), wanted_count):
        want_success = len(chosen) % 2 == 0
        usable = [t for t in group if t.status is Status.OK and t.steps]
        preferred = [t for t in usable if t.outcome.success == want_success] or usable
        if preferred:
            chosen.append(draw.choice(preferred))
    return chosen


class PolicyDistiller:
    """The policy itself writes one JSON lesson ``{situation, memory}``; broken JSON is a fault."""

    def __init__(self, prompts: str = "distill", max_new_tokens: int = 256) -> None:
        self.prompts = load_prompts(prompts)
        self.max_new_tokens = max_new_tokens

    async def distill(self, trajectory: Trajectory, policy: Policy, seed: int) -> Distilled:
        source = trajectory.steps[0].observation
        text = self.prompts.render(
            "distill",
            task=trajectory.info["goal"],
            history=trajectory.steps,
            success=trajectory.outcome.success,
        )
        generation = await policy.generate(
            GenerationRequest(
                prompt_ids=policy.encode([{"role": "user", "content": text}]),
                stage="distill",
                max_new_tokens=self.max_new_tokens,
                seed=turn_seed(seed, 0),
            )
        )
        lesson = _read_lesson(generation.text)
        if lesson is None:
            return Distilled(None, "distill: no JSON object with the strings situation and memory")
        situation, memory = lesson
        return Distilled(
            NewEntry(
                text=f"{situation}: {memory}",
                source_observation=source,
                task_kind=trajectory.task.kind,
                provenance=(trajectory.trajectory_id,),
            )
        )


class WorkflowDistiller:
    """Without a language model: the commands that changed something, numbers removed, of a won episode.

    ``skip`` names the leading words of commands that only look or walk.
    """

    def __init__(
        self, skip: Sequence[str] = ("go to", "look", "inventory", "examine", "open", "close", "help")
    ) -> None:
        self.skip = tuple(skip)

    async def distill(self, trajectory: Trajectory, policy: Policy, seed: int) -> Distilled:
        if not trajectory.outcome.success:
            return Distilled(None, "distill: a lost episode has no workflow")
        commands = [
            re.sub(r" \d+", "", step.action)
            for step in trajectory.steps
            if step.valid and not step.action.startswith(self.skip)
        ]
        if not commands:
            return Distilled(None, "distill: no command changed anything")
        return Distilled(
            NewEntry(
                text=" ; ".join(commands),
                source_observation=trajectory.steps[0].observation,
                task_kind=trajectory.task.kind,
                provenance=(trajectory.trajectory_id,),
            )
        )


def _read_lesson(completion: str) -> tuple[str, str] | None:
    found = re.search(r"\{.*\}", completion, flags=re.DOTALL)
    if found is None:
        return None
    try:
        lesson = json.loads(found.group())
    except json.JSONDecodeError:
        return None
    situation, memory = lesson.get("situation"), lesson.get("memory")
    if not (isinstance(situation, str) and isinstance(memory, str) and memory.strip()):
        return None
    return situation.strip(), memory.strip()
