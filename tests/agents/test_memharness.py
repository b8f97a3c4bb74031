"""The MemHarness episode: which stages are played, what each one sees, what becomes of bad output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from agents.memharness import MemHarness
from agents.react import React
from agents.types import GenerationRequest, Trajectory
from envs.types import StopReason
from memory.bank import ExperienceBank
from memory.no_memory import NoMemory
from memory.retrieval import HashedEmbedder
from memory.types import NewEntry
from rewards.base import RewardReport
from tests.agents.worlds import LIGHT, LightWorld
from trainer.advantage import grpo
from trainer.generate.scripted import ScriptedPolicy
from trainer.rollout import rollout
from trainer.samples import train_samples
from trainer.tiny import build_tokenizer
from trainer.types import TrainSample

REMEMBERED = "remembered words use lamp"
TOKENIZER = build_tokenizer(
    ["go to lamp use lamp wait guidance query memory none You are in a dark room"] * 2
)

Script = Callable[[str, str], str]


def bank(text: str = REMEMBERED) -> ExperienceBank:
    filled = ExperienceBank(HashedEmbedder())
    filled.insert([NewEntry(text, "another room", "light")], step=0)
    return filled


def play(agent: object, script: Script, memory: object = None) -> Trajectory:
    def respond(request: GenerationRequest, prompt: str) -> str:
        return script(request.stage, prompt)

    [[trajectory]] = rollout(
        [LIGHT],
        agent=agent,  # type: ignore[arg-type]
        world=LightWorld(),
        memory=bank() if memory is None else memory,
        policy=ScriptedPolicy(TOKENIZER, respond),
        group_size=1,
        seed=0,
    )
    return trajectory


def stages(trajectory: Trajectory) -> list[str]:
    return [turn.stage for turn in trajectory.turns]


def winner(guidance: str = "use lamp", prompts: list[tuple[str, str]] | None = None) -> Script:
    acted: list[str] = []

    def script(stage: str, prompt: str) -> str:
        if prompts is not None:
            prompts.append((stage, prompt))
        if stage != "act":
            return {"query": "lamp", "reconstruct": guidance}[stage]
        acted.append(stage)
        return "go to lamp" if len(acted) == 1 else "use lamp"

    return script


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("first_step", ["query", "reconstruct", "act", "act"]),
        ("always", ["query", "reconstruct", "act"] * 2),
        ("never", ["act", "act"]),
    ],
)
def test_stages_of_an_episode(query: str, expected: list[str]) -> None:
    trajectory = play(MemHarness("memharness_tiny", query=query), winner())
    assert stages(trajectory) == expected
    assert trajectory.outcome.success and trajectory.stop_reason is StopReason.SUCCESS
    assert [step.action for step in trajectory.steps] == ["go to lamp", "use lamp"]


def test_the_policy_may_decline_to_query() -> None:
    script = winner()
    trajectory = play(
        MemHarness("memharness_tiny", query="policy"),
        lambda stage, prompt: "none" if stage == "query" else script(stage, prompt),
    )
    assert stages(trajectory) == ["query", "act", "query", "act"]
    assert trajectory.memory_reads == ()


@pytest.mark.parametrize("prompts", ["memharness_tiny", "memharness"])
def test_rejected_memory_never_reaches_the_act_prompt(prompts: str) -> None:
    seen: list[tuple[str, str]] = []
    wrap = "{}" if prompts == "memharness_tiny" else "<{tag}>{}</{tag}>"
    tags = {"query": "query", "reconstruct": "guidance", "act": "action"}
    script = winner("none", seen)
    trajectory = play(
        MemHarness(prompts, query="first_step"),
        lambda stage, prompt: wrap.format(script(stage, prompt), tag=tags[stage]),
    )
    assert trajectory.memory_reads[0].guidance is None and trajectory.memory_reads[0].entry_ids
    assert any(REMEMBERED in prompt for stage, prompt in seen if stage == "reconstruct")
    acts = [prompt for stage, prompt in seen if stage == "act"]
    assert acts and not any(REMEMBERED in prompt for prompt in acts)
    assert ("guidance none" if prompts == "memharness_tiny" else "no applicable memory") in acts[0]


def test_accepted_guidance_reaches_the_act_prompt_in_its_own_words() -> None:
    seen: list[tuple[str, str]] = []
    play(MemHarness("memharness_tiny", query="first_step"), winner("go to lamp first", seen))
    acts = [prompt for stage, prompt in seen if stage == "act"]
    assert "guidance go to lamp first" in acts[0] and REMEMBERED not in acts[0]


def test_an_empty_bank_plays_without_reconstruction() -> None:
    trajectory = play(MemHarness("memharness_tiny", query="first_step"), winner(), NoMemory())
    assert stages(trajectory) == ["query", "act", "act"]
    assert trajectory.memory_reads[0].entry_ids == ()


def test_malformed_action_is_a_refused_step_with_a_fault() -> None:
    trajectory = play(React("react", max_steps=2), lambda stage, prompt: "I would use the lamp")
    assert [turn.fault for turn in trajectory.turns] == ["action: found 0 <action> answers, expected 1"] * 2
    assert [(step.action, step.valid) for step in trajectory.steps] == [("", False)] * 2
    assert trajectory.stop_reason is StopReason.STEP_LIMIT and not trajectory.outcome.success


def test_an_output_cut_off_is_a_fault_and_the_conversation_stays_well_formed() -> None:
    trajectory = play(React("react_tiny", max_steps=2, max_new_tokens=2), lambda *_: "go to lamp and wait")
    first, second = trajectory.turns
    assert first.fault == "action: cut off at the token limit"
    end = TOKENIZER.eos_token_id
    assert second.prompt_ids[: len(first.prompt_ids) + 3] == (*first.prompt_ids, *first.completion_ids, end)


def _rows(trajectory: Trajectory, other: Trajectory) -> Sequence[TrainSample]:
    report = RewardReport(total=(1.0, 0.0), parts={}, status=("ok", "ok"))
    group = [trajectory, other]
    return train_samples(group, grpo(group, report))


def test_every_stage_is_trained() -> None:
    won = play(MemHarness("memharness_tiny", query="first_step"), winner())
    lost = play(MemHarness("memharness_tiny", query="first_step", max_steps=1), winner())
    rows = [row for row in _rows(won, lost) if row.trajectory_id == won.trajectory_id]
    trained = [
        token
        for row in rows
        for token, mask, advantage in zip(row.input_ids, row.loss_mask, row.advantages, strict=True)
        if mask and advantage > 0
    ]
    assert trained == [token for turn in won.turns for token in turn.completion_ids]


def test_unknown_query_mode_names_the_choices() -> None:
    with pytest.raises(ValueError, match="policy, always, first_step, never"):
        MemHarness(query="sometimes")
