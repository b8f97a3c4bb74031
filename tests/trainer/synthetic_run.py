"""A run folder made by the real writers from trajectories that a seed invents."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from agents.types import EnvStep, MemoryRead, Outcome, Trajectory, Turn
from envs.types import StopReason, Task
from rewards.base import RewardReport
from trainer.checks import Alarms
from trainer.logging import ALARM, EVAL, STEP, Loggers, MetricRow
from trainer.metrics import Played, step_metrics
from trainer.rollout_log import RolloutLog
from trainer.run_folder import RunFolder
from trainer.statistics import wilson
from trainer.tiny import build_tokenizer
from trainer.types import GroupAdvantages

KINDS = ("pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep")
CONFIG: dict[str, Any] = {
    "run": {"name": "synthetic", "dir": "runs", "seed": 0, "resume": False, "dry": False},
    "train": {"steps": 30, "tasks_per_step": 4, "group_size": 4, "learning_rate": 1e-4},
    "sft": {"steps": 40, "learning_rate": 1e-3},
    "env": {"_target_": "envs.household.world.HouseholdWorld"},
    "agent": {"_target_": "agents.memharness.MemHarness"},
    "policy": {"model": {"layers": 4, "hidden_size": 128}},
    "rewards": {"outcome": {"weight": 1.0}, "format": {"weight": 0.1}},
}
TEXTS = [
    "You are in the middle of a room. You see a shelf 1, a desk 1 </script> and a <b>drawer 2</b>.",
    "go to shelf 1", "take mug 2 from shelf 1", "use desklamp 1", "How do I find a mug?",
    "Look on every shelf before you open drawers.",
]
TOKENIZER = build_tokenizer(TEXTS, vocab_size=320)


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False).input_ids)


def trajectory(draw: random.Random, name: str, kind: str, skill: float) -> Trajectory:
    """An episode of three turns a step: query, reconstruct, and an act that extends the last act's prompt."""
    task = Task(f"{kind}-{draw.randrange(50)}", "household", kind, "train", seed=1)
    success = draw.random() < skill
    turns: list[Turn] = []
    steps, reads = [], []
    history: tuple[int, ...] = ids(TEXTS[0])
    length = draw.randint(2, 5)
    for step in range(length):
        query = _turn(draw, "query", step, ids(TEXTS[0]), TEXTS[4])
        guided = draw.random() < 0.6
        act = _turn(draw, "act", step, history, draw.choice(TEXTS[1:4]))
        turns += [query, _turn(draw, "reconstruct", step, ids(TEXTS[5]), TEXTS[5]), act]
        reads.append(MemoryRead(step, TEXTS[4], ("e1", "e7"), (0.91, 0.52), TEXTS[5] if guided else None))
        won = success and step == length - 1
        steps.append(EnvStep(step, TEXTS[0], act.text, float(won), valid=draw.random() < 0.8))
        history = act.prompt_ids + act.completion_ids + ids(TEXTS[0])
    stop = StopReason.SUCCESS if success else StopReason.STEP_LIMIT
    return Trajectory(
        name, task, tuple(turns), tuple(steps), Outcome(float(success), success), stop, tuple(reads)
    )


def _turn(draw: random.Random, stage: str, step: int, prompt: tuple[int, ...], text: str) -> Turn:
    completion = (*ids(text), int(TOKENIZER.eos_token_id))
    logprobs = tuple(-draw.expovariate(2.0) for _ in completion)
    return Turn(stage, step, prompt, completion, logprobs, text, policy_version=0, finish_reason="stop")


def played(draw: random.Random, kind: str, skill: float, size: int = 4) -> Played:
    group = [trajectory(draw, f"{kind}/{i}", kind, skill) for i in range(size)]
    rewards = [t.outcome.score for t in group]
    mean = sum(rewards) / size
    report = RewardReport(
        total=tuple(rewards),
        parts={"outcome": tuple(rewards), "format": tuple(draw.random() for _ in group)},
        status=("ok",) * size,
    )
    credit = GroupAdvantages(
        tokens=tuple(
            tuple(tuple(r - mean + draw.gauss(0, 0.2) for _ in turn.completion_ids) for turn in t.turns)
            for t, r in zip(group, rewards, strict=True)
        ),
        outcome=tuple(r - mean for r in rewards),
        tied=len(set(rewards)) == 1,
    )
    return Played(group, report, credit)


def evaluation(draw: random.Random, step: int, name: str, skill: float) -> MetricRow:
    by_kind = {kind: [sum(draw.random() < skill for _ in range(20)), 20] for kind in KINDS}
    won, total = sum(w for w, _ in by_kind.values()), 20 * len(KINDS)
    low, high = wilson(won, total)
    values = {
        "split": "valid_unseen", "name": name, "success_rate": won / total, "success_low": low,
        "success_high": high, "by_kind": by_kind, "played": total, "won": won, "failed": 0,
    }
    return MetricRow(EVAL, "grpo", step, values)


def make_run(path: Path, steps: int = 30, seed: int = 0) -> Path:
    """Write a run of ``steps`` updates into ``path`` and return it."""
    draw = random.Random(seed)
    with RunFolder.open(path, CONFIG) as run:
        loggers = Loggers(run.path, CONFIG)
        rollouts = RolloutLog(run.rollouts_path, TOKENIZER)
        alarms = Alarms()
        for step in range(1, 41):
            loggers.log(MetricRow(STEP, "sft", step, {"loss": 3 * math.exp(-step / 15), "grad_norm": 1.0}))
        for step in range(steps + 1):
            skill = 0.2 + 0.6 * step / steps
            if step % 10 == 0:
                loggers.log(evaluation(draw, step, "sampled_t1", skill))
                loggers.log(evaluation(draw, step, "greedy", skill))
            if step == 0:
                continue
            groups = [played(draw, kind, skill) for kind in KINDS]
            update = {"entropy": 1.5 * math.exp(-step / 8), "grad_norm": 0.5 + draw.random(),
                      "loss": draw.gauss(0, 0.1), "approx_kl": 0.001, "logprob_gap": 1e-6}
            memory = {"memory/size": 4.0 * step, "memory/utility_mean": 0.5}
            values = {**step_metrics(groups), **update, **memory}
            loggers.log(MetricRow(STEP, "grpo", step, values, {"seconds": 2.5, "rollout_seconds": 1.5}))
            for alarm in alarms.check(values):
                loggers.log(MetricRow(ALARM, "grpo", step, alarm.values()))
            rollouts.write(
                "grpo", step, [p.group for p in groups], [p.report for p in groups],
                [p.advantages for p in groups],
            )
        run.save_memory("grpo", steps, {"entries": [entry(draw, i) for i in range(60)]})
        loggers.close()
    return path


def entry(draw: random.Random, number: int) -> dict[str, Any]:
    uses = draw.randrange(40)
    return {
        "entry_id": f"e{number}", "text": f"{TEXTS[5]} Lesson {number}.", "source_observation": TEXTS[0],
        "task_kind": KINDS[number % 3], "created_step": number, "uses": uses,
        "successes": draw.randint(0, uses), "provenance": [],
    }


if __name__ == "__main__":
    import sys

    from trainer.report import build_report

    print(build_report(make_run(Path(sys.argv[1]))))
