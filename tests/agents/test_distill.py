"""What is written down about a finished episode."""

from __future__ import annotations

import asyncio

import pytest

from agents.distill import Distilled, PolicyDistiller, WorkflowDistiller, choose_trajectories
from agents.react import React
from agents.types import Trajectory
from tests.agents.test_memharness import TOKENIZER, play
from trainer.generate.scripted import ScriptedPolicy


def episode(*actions: str) -> Trajectory:
    script = iter(actions)
    return play(React("react_tiny", max_steps=len(actions)), lambda *_: next(script))


WON = episode("go to lamp", "use lamp")
LOST = episode("wait", "wait")


def distil(answer: str, trajectory: Trajectory = WON) -> Distilled:
    policy = ScriptedPolicy(TOKENIZER, lambda request, prompt: answer)
    return asyncio.run(PolicyDistiller().distill(trajectory, policy, seed=0))


def test_policy_distiller_reads_the_json_lesson() -> None:
    lesson = distil('Sure: {"situation": "dark room", "memory": "use the lamp"}')
    assert lesson.fault is None and lesson.entry is not None
    assert lesson.entry.text == "dark room: use the lamp"
    assert lesson.entry.source_observation == WON.steps[0].observation
    assert lesson.entry.provenance == (WON.trajectory_id,)


@pytest.mark.parametrize(
    "answer", ["", "no json", "{broken", '{"situation": "s"}', '{"situation": 1, "memory": "m"}', '{"a": [}']
)
def test_broken_lessons_are_faults(answer: str) -> None:
    lesson = distil(answer)
    assert lesson.entry is None and lesson.fault is not None


def test_workflow_keeps_what_changed_something() -> None:
    policy = ScriptedPolicy(TOKENIZER, lambda *_: "")
    won = asyncio.run(WorkflowDistiller().distill(WON, policy, seed=0))
    assert won.entry is not None and won.entry.text == "use lamp"
    assert asyncio.run(WorkflowDistiller().distill(LOST, policy, seed=0)).entry is None


def test_choice_is_balanced_and_repeatable() -> None:
    groups = [[WON, LOST] for _ in range(8)]
    chosen = choose_trajectories(groups, share=0.5, seed=3)
    assert len(chosen) == 4 and sum(t.outcome.success for t in chosen) == 2
    assert chosen == choose_trajectories(groups, share=0.5, seed=3)
    assert choose_trajectories([[LOST, LOST]], share=1.0, seed=0)[0] is LOST
