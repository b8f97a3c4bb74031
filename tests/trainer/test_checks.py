from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from agents.types import Failure, Status
from tests.trainer.synthetic_run import KINDS, played
from trainer.checks import Alarms, Thresholds
from trainer.metrics import step_metrics

HEALTHY = {
    "tied_groups": 0.3, "truncated": 0.0, "context_limit": 0.0, "masked": 0.0, "repeated_actions": 0.1,
    "logprob_gap": 1e-6, "kl": 0.01, "approx_kl": 0.001, "staleness": 0, "entropy": 1.0, "skipped": 0.0,
    "reward_correlation/outcome~format": 0.2,
}


def test_a_healthy_step_raises_none() -> None:
    assert Alarms().check(HEALTHY) == []


@pytest.mark.parametrize(
    ("metric", "value", "kind"),
    [
        ("tied_groups", 0.9, "tied groups"),
        ("truncated", 0.5, "truncation"),
        ("context_limit", 0.5, "context limit"),
        ("masked", 0.5, "masked trajectories"),
        ("repeated_actions", 0.8, "repeated actions"),
        ("logprob_gap", 0.1, "sampler/trainer gap"),
        ("logprob_gap", math.nan, "sampler/trainer gap"),
        ("kl", 5.0, "KL to the reference"),
        ("approx_kl", 0.5, "KL of one update"),
        ("staleness", 1, "stale policy"),
        ("skipped", 1.0, "skipped update"),
        ("reward_correlation/outcome~format", -0.9, "reward parts disagree"),
    ],
)
def test_each_sign_has_its_alarm_with_a_way_out(metric: str, value: float, kind: str) -> None:
    (alarm,) = Alarms().check({**HEALTHY, metric: value})
    assert alarm.kind == kind
    assert alarm.found and alarm.expected and alarm.action


def test_entropy_collapse_is_measured_against_the_first_steps_and_survives_a_restart() -> None:
    alarms = Alarms()
    for _ in range(Alarms.FIRST_STEPS):
        assert alarms.check({"entropy": 2.0}) == []
    resumed = Alarms()
    resumed.load_state_dict(alarms.state_dict())
    assert resumed.check({"entropy": 0.3}) == []
    assert [a.kind for a in resumed.check({"entropy": 0.1})] == ["entropy collapse"]


def test_thresholds_can_be_set() -> None:
    assert Alarms(Thresholds(tied_share=0.95)).check({"tied_groups": 0.9}) == []


def test_step_metrics_leave_masked_trajectories_out_and_count_them() -> None:
    whole = played(random.Random(0), KINDS[0], 0.5)
    failure = Failure("environment", "deadline", "no answer in 10 s")
    group = [replace(whole.group[0], status=Status.FAILED, failure=failure), *whole.group[1:]]
    report = replace(whole.report, total=(None, *whole.report.total[1:]))
    values = step_metrics([replace(whole, group=group, report=report)])
    kept = [x for x in report.total if x is not None]
    assert values["reward"] == pytest.approx(sum(kept) / 3)
    assert values["masked"] == pytest.approx(0.25)
    assert values["failures/environment"] == 1
    assert values[f"episodes/{KINDS[0]}"] == 3


def test_step_metrics_take_the_error_over_groups() -> None:
    draw = random.Random(0)
    groups = [played(draw, kind, skill) for kind, skill in zip(KINDS, (0, 1, 1), strict=True)]
    values = step_metrics(groups)
    assert values["success"] == pytest.approx(2 / 3)
    assert values["success_sem"] == pytest.approx(1 / 3)
    assert values[f"success/{KINDS[0]}"] == 0 and values[f"success/{KINDS[1]}"] == 1
    assert values["tied_groups"] == 1


def test_a_repeated_action_on_one_observation_is_seen() -> None:
    whole = played(random.Random(0), KINDS[0], 0.0)
    step = whole.group[0].steps[0]
    stuck = [replace(t, steps=(step,) * 3) for t in whole.group[:2]]
    elsewhere = tuple(replace(step, observation=f"room {i}") for i in range(3))
    moving = [replace(t, steps=elsewhere) for t in whole.group[2:]]
    assert step_metrics([replace(whole, group=stuck + moving)])["repeated_actions"] == 0.5


def test_a_step_in_which_everything_failed_still_has_metrics() -> None:
    whole = played(random.Random(0), KINDS[0], 0.0)
    values = step_metrics([replace(whole, report=replace(whole.report, total=(None,) * 4))])
    assert values["masked"] == 1.0
    assert "reward" not in values
