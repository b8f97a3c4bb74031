"""Alarms: signs in a step's metrics that training goes wrong, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a number is an alarm. Shares and correlations are fractions, log-probs in nats."""

    tied_share: float = 0.8
    truncated_share: float = 0.2
    context_limit_share: float = 0.2
    masked_share: float = 0.1
    repeated_share: float = 0.5
    logprob_gap: float = 0.02
    kl: float = 1.0
    step_kl: float = 0.1
    entropy_fraction: float = 0.1
    parts_correlation: float = -0.5
    staleness: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """One finding: what was found, what was expected, what to do."""

    kind: str
    found: str
    expected: str
    action: str

    def values(self) -> dict[str, str]:
        """Plain values for metrics.jsonl."""
        return {"alarm": self.kind, "found": self.found, "expected": self.expected, "action": self.action}


@dataclass(frozen=True, slots=True)
class _Limit:
    metric: str
    threshold: str
    kind: str
    what: str
    action: str


_LIMITS = (
    _Limit("tied_groups", "tied_share", "tied groups", "of groups have equal rewards and teach nothing",
           "take tasks of middling difficulty, larger groups (train.group_size), or a finer reward"),
    _Limit("truncated", "truncated_share", "truncation", "of turns stop at the token limit",
           "raise the agent's max_new_tokens, or reward shorter turns"),
    _Limit("context_limit", "context_limit_share", "context limit",
           "of episodes end because the prompt no longer fits",
           "raise the policy's context length, or let the agent keep less history"),
    _Limit("masked", "masked_share", "masked trajectories", "of trajectories failed or were unscorable",
           "look at failures/* in metrics.jsonl and at the failure text in the rollout viewer"),
    _Limit("repeated_actions", "repeated_share", "repeated actions",
           "of trajectories take one action three times on the same observation",
           "show the agent its last actions, or raise the sampling temperature"),
    _Limit("logprob_gap", "logprob_gap", "sampler/trainer gap",
           "nats between sampler and trainer log-prob of a token (mean)",
           "check that both apply the same temperature, allowed tokens and precision"),
    _Limit("kl", "kl", "KL to the reference", "nats per token from the reference policy",
           "raise loss.kl_coef or lower train.learning_rate"),
    _Limit("approx_kl", "step_kl", "KL of one update", "nats per token from the sampling policy",
           "lower train.learning_rate or the number of update epochs"),
    _Limit("staleness", "staleness", "stale policy", "versions between turns of one step",
           "wait for the sampler to take the new weights, or use an importance correction (loss)"),
)


class Alarms:
    """Watches one run. Its state is the entropy of the first steps, so it belongs in a checkpoint."""

    FIRST_STEPS = 5

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self._first_entropies: list[float] = []

    def check(self, values: Mapping[str, float]) -> list[Alarm]:
        """Alarms of one GRPO step, from `trainer.metrics.step_metrics` and the numbers of its update.

        A metric that the step lacks (no KL term, one reward part) raises no alarm.
        """
        return [*self._limits(values), *self._entropy(values), *self._parts(values), *self._skipped(values)]

    def state_dict(self) -> dict[str, Any]:
        return {"first_entropies": list(self._first_entropies)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._first_entropies = list(state_dict["first_entropies"])

    def _limits(self, values: Mapping[str, float]) -> Iterator[Alarm]:
        for limit in _LIMITS:
            most = getattr(self.thresholds, limit.threshold)
            found = values.get(limit.metric)
            # A NaN is over every limit.
            if found is not None and not found <= most:
                yield Alarm(limit.kind, f"{found:.3g} {limit.what}", f"at most {most:g}", limit.action)

    def _entropy(self, values: Mapping[str, float]) -> Iterator[Alarm]:
        entropy = values.get("entropy")
        if entropy is None:
            return
        if len(self._first_entropies) < self.FIRST_STEPS:
            self._first_entropies.append(entropy)
            return
        least = self.thresholds.entropy_fraction * fmean(self._first_entropies)
        if entropy < least:
            yield Alarm(
                "entropy collapse",
                f"{entropy:.3g} nats per token",
                f"at least {least:.3g} ({self.thresholds.entropy_fraction:g} of the first steps)",
                "lower train.learning_rate, raise the upper clip (loss), or add a KL term (loss.kl_coef)",
            )

    def _parts(self, values: Mapping[str, float]) -> Iterator[Alarm]:
        least = self.thresholds.parts_correlation
        for name, correlation in values.items():
            if name.startswith("reward_correlation/") and correlation < least:
                pair = name.removeprefix("reward_correlation/").replace("~", " and ")
                yield Alarm(
                    "reward parts disagree",
                    f"{pair} correlate at {correlation:.2f} over the step's trajectories",
                    f"at least {least:g}",
                    "one part rewards what the other punishes: look at both in the rollout viewer",
                )

    def _skipped(self, values: Mapping[str, float]) -> Iterator[Alarm]:
        if values.get("skipped"):
            yield Alarm(
                "skipped update",
                "loss or gradient was NaN or infinite",
                "finite numbers",
                "lower train.learning_rate; a second one in a row stops the run",
            )
