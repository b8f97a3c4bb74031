"""Advantages of a group of trajectories, taken before they are flattened into rows.

Every estimator is ``f(group, report, **options) -> GroupAdvantages``. Statistics are over the scored
trajectories of one task, so an episode of 30 turns weighs as much as one of 3. Masked trajectories
(total None) count in no statistic and get None. Standard deviations are unbiased (divisor n - 1), as
in TRL and verl.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Literal, Protocol

from agents.types import Trajectory
from rewards.base import RewardReport, TokenCredit
from trainer.types import GroupAdvantages, TokenAdvantages

Pool = Literal["scored", "all"]


class Estimator(Protocol):
    """What the `advantage` config group builds: options are bound beforehand."""

    def __call__(self, group: Sequence[Trajectory], report: RewardReport) -> GroupAdvantages: ...


def grpo(group: Sequence[Trajectory], report: RewardReport, *, eps: float = 1e-6) -> GroupAdvantages:
    """Reward minus group mean, over group standard deviation plus ``eps`` (GRPO, DeepSeekMath section 4.1.2).

    ``eps`` 1e-6 is verl's; TRL uses 1e-4.
    """
    return _broadcast(group, report, lambda rewards: _normalised(rewards, std=True, eps=eps))


def grpo_no_std(group: Sequence[Trajectory], report: RewardReport) -> GroupAdvantages:
    """Reward minus group mean (Dr. GRPO, arXiv 2503.20783 section 3.2)."""
    return _broadcast(group, report, lambda rewards: _normalised(rewards, std=False, eps=0.0))


def rloo(group: Sequence[Trajectory], report: RewardReport) -> GroupAdvantages:
    """Reward minus the mean reward of the other trajectories (RLOO, arXiv 2402.14740 equation 9)."""

    def leave_one_out(rewards: Sequence[float]) -> list[float]:
        n = len(rewards)
        return [n / (n - 1) * centred for centred in _normalised(rewards, std=False, eps=0.0)]

    return _broadcast(group, report, leave_one_out)


def gigpo(
    group: Sequence[Trajectory],
    report: RewardReport,
    *,
    omega: float = 1.0,
    gamma: float = 0.95,
    std: bool = True,
    eps: float = 1e-6,
) -> GroupAdvantages:
    """Episode advantage plus ``omega`` times the step advantage among equal states (GiGPO, arXiv 2505.10978).

    Steps of the scored trajectories with the same observation form one anchor group (equation 6); inside
    it the returns of the world's own step rewards, discounted by ``gamma``, are normalised like the
    episode rewards (equations 7 and 8). The step advantage goes to every turn of that step; turns
    without an environment step get the episode advantage alone. ``std`` False leaves the scale (the
    paper's F_norm = 1).
    """
    episode = _broadcast(group, report, lambda rewards: _normalised(rewards, std=std, eps=eps))
    anchors: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for i, trajectory in enumerate(group):
        if report.total[i] is not None:
            for step, observation, value in _discounted(trajectory, gamma):
                anchors[observation].append((i, step, value))
    of_step: dict[tuple[int, int], float] = {}
    for members in anchors.values():
        values = _normalised([value for _, _, value in members], std=std, eps=eps)
        for (i, step, _), value in zip(members, values, strict=True):
            of_step[i, step] = omega * value
    added = [
        tuple((of_step.get((i, turn.step), 0.0),) * len(turn.completion_ids) for turn in trajectory.turns)
        for i, trajectory in enumerate(group)
    ]
    return _add(episode, added)


def process(
    group: Sequence[Trajectory],
    report: RewardReport,
    *,
    base: Estimator = grpo,
    weight: float = 1.0,
    pool: Pool = "scored",
    centre: bool = True,
    eps: float = 1e-6,
) -> GroupAdvantages:
    """``base`` plus ``weight`` times the token credit normalised over the group (AttriMem, ``A_process``).

    ``pool`` says which tokens make the mean and standard deviation and receive credit: ``scored`` those
    with a credit other than 0 (0 means the token was never retrieved), ``all`` every token of a
    trajectory that has credit. ``centre`` False only divides by the root mean square, which keeps the
    sign of every credit. A trajectory without credit gets ``base`` alone. ValueError when no reward
    gives token credit, or the credit does not fit the tokens.
    """
    advantages = base(group, report)
    if report.token_credit is None:
        raise ValueError(
            "advantage 'process' got no token credit: none of the rewards returns any from credit(). "
            "Add one that does (for example rewards.attribution) or use its base estimator alone."
        )
    credit = [
        None if masked is None else given
        for given, masked in zip(report.token_credit, advantages.tokens, strict=True)
    ]
    for trajectory, given in zip(group, credit, strict=True):
        if given is not None:
            _check_credit(trajectory, given)
    every = [x for given in credit if given is not None for turn in given for x in turn]
    flat = every if pool == "all" else [x for x in every if x != 0.0]
    if not flat:
        return advantages
    mean = fmean(flat) if centre else 0.0
    free = max(len(flat) - 1, 1) if centre else len(flat)
    scale = math.sqrt(sum((x - mean) ** 2 for x in flat) / free) + eps

    def normalised(x: float) -> float:
        return 0.0 if pool == "scored" and x == 0.0 else weight * (x - mean) / scale

    added = [
        None if given is None else tuple(tuple(map(normalised, turn)) for turn in given) for given in credit
    ]
    return _add(advantages, added)


def _broadcast(
    group: Sequence[Trajectory],
    report: RewardReport,
    of_rewards: Callable[[Sequence[float]], Sequence[float]],
) -> GroupAdvantages:
    """Give each scored trajectory its value on every token; exactly 0 when the group is tied."""
    if len(group) != len(report.total):
        raise ValueError(f"report of {len(report.total)} trajectories for a group of {len(group)}")
    rewards = [reward for reward in report.total if reward is not None]
    tied = not rewards or _same(rewards)
    values = iter([0.0] * len(rewards) if tied else of_rewards(rewards))
    outcome = tuple(None if reward is None else next(values) for reward in report.total)
    tokens = tuple(
        None if value is None else tuple((value,) * len(turn.completion_ids) for turn in trajectory.turns)
        for trajectory, value in zip(group, outcome, strict=True)
    )
    return GroupAdvantages(tokens=tokens, outcome=outcome, tied=tied)


def _normalised(values: Sequence[float], *, std: bool, eps: float) -> list[float]:
    if _same(values):
        return [0.0] * len(values)
    mean = fmean(values)
    scale = stdev(values) + eps if std else 1.0
    return [(value - mean) / scale for value in values]


def _same(values: Sequence[float]) -> bool:
    # Rewards are sums of weighted parts: equal ones may differ in the last bits.
    return math.isclose(min(values), max(values), rel_tol=1e-9, abs_tol=1e-12)


def _discounted(trajectory: Trajectory, gamma: float) -> list[tuple[int, str, float]]:
    """Step number, observation before it and discounted return from it on."""
    result: list[tuple[int, str, float]] = []
    value = 0.0
    for step in reversed(trajectory.steps):
        value = step.reward + gamma * value
        result.append((step.step, step.observation, value))
    return result[::-1]


def _add(advantages: GroupAdvantages, added: Sequence[TokenAdvantages | None]) -> GroupAdvantages:
    tokens = tuple(
        base
        if base is None or extra is None
        else tuple(tuple(a + b for a, b in zip(x, y, strict=True)) for x, y in zip(base, extra, strict=True))
        for base, extra in zip(advantages.tokens, added, strict=True)
    )
    return GroupAdvantages(tokens=tokens, outcome=advantages.outcome, tied=advantages.tied)


def _check_credit(trajectory: Trajectory, credit: TokenCredit) -> None:
    found = [len(turn) for turn in credit]
    expected = [len(turn.completion_ids) for turn in trajectory.turns]
    if found != expected:
        raise ValueError(
            f"token credit of trajectory {trajectory.trajectory_id} has {found} tokens per turn, "
            f"its turns have {expected}: a reward's credit() must give one number per completion token"
        )
