"""The examples of CONTRIBUTING.md, run as printed."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agents.react import React
from agents.types import Trajectory
from envs.base import TextEnv, World
from envs.types import StopReason
from memory.no_memory import NoMemory
from rewards.base import score_group
from trainer.config_compose import compose_config
from trainer.generate.scripted import ScriptedPolicy
from trainer.rollout import rollout
from trainer.tiny import build_tokenizer

GUIDE = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"
NAMED_BLOCK = re.compile(r"```(?:python|yaml)\n# (\S+\.(?:py|yaml))\n(.*?)```", re.DOTALL)
COMMANDS = re.findall(r"^memgrpo .*$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A user's working folder with every file that the guide prints."""
    files = NAMED_BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    for name, content in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert len(files) == 7
    return tmp_path


@pytest.fixture
def config(workshop):
    """The config of the last command, which uses all three examples."""
    overrides = [part for part in shlex.split(COMMANDS[-1])[2:] if "=" in part]
    return compose_config(overrides, str(workshop / "my_configs"))


def play(agent, world, completions) -> list[Trajectory]:
    """One group of two on the first training task, the policy writing ``completions`` in turn."""
    written: dict[str, int] = {}

    def respond(request, prompt):
        turn = written[request.session] = written.get(request.session, -1) + 1
        return completions[turn]

    policy = ScriptedPolicy(build_tokenizer(["guess the number"], vocab_size=300), respond)
    tasks = world.tasks("train")[:1]
    (group,) = rollout(
        tasks, agent=agent, world=world, memory=NoMemory(), policy=policy, group_size=2, seed=0
    )
    return group


def test_the_environment_is_won_by_its_gold_and_refuses_nonsense(config):
    world = config.env.build()
    env = world.make_env()
    assert isinstance(world, World) and isinstance(env, TextEnv)
    for task in [*world.tasks("train"), *world.tasks("valid_unseen")]:
        env.reset(task)
        refused = env.step("open the door")
        assert not refused.valid and not refused.done
        assert env.step(env.gold(task)[0]).success
    with pytest.raises(ValueError, match="split is 'test'"):
        world.tasks("test")


def test_the_agent_plans_then_acts_in_one_conversation(config):
    world = config.env.build()
    secret = str(world.tasks("train")[0].payload["secret"])
    trajectory, _ = play(config.agent.build(), world, ["halve the range", "nothing", secret])
    assert [turn.stage for turn in trajectory.turns] == ["plan", "act", "act"]
    assert trajectory.stop_reason is StopReason.SUCCESS
    assert [step.valid for step in trajectory.steps] == [False, True]
    for before, after in zip(trajectory.turns, trajectory.turns[1:], strict=False):
        so_far = before.prompt_ids + before.completion_ids
        assert after.prompt_ids[: len(so_far)] == so_far


def test_the_reward_pays_short_wins(config):
    world = config.env.build()
    secret = world.tasks("train")[0].payload["secret"]
    wrong = "1" if secret != 1 else "2"
    agent = React(prompts="react_tiny", max_steps=5)
    rewards = {name: part.build() for name, part in config.rewards.items()}
    assert set(rewards) == {"outcome", "brevity"}
    for completions, expected in (([wrong, str(secret)], 1 - 2 / 25), ([wrong] * 5, 0.0)):
        report = asyncio.run(score_group(rewards, play(agent, world, completions)))
        assert report.parts["brevity"] == pytest.approx((expected, expected))
        won = float(expected > 0)
        assert report.total[0] == pytest.approx(won + 0.2 * expected)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_printed_commands_run(workshop, command):
    line = [str(Path(sys.executable).with_name("memgrpo")), *shlex.split(command)[1:]]
    if "run.dry=true" not in line:
        line.append("run.dry=true")
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (workshop / "runs").exists()
