"""What report.html shows, read from the files of a run folder alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]

from memory.errors import UserError
from trainer.logging import read_metrics
from trainer.rollout_log import read_rollouts
from trainer.rows import ALARM, EVAL, STEP, MetricRow

ROLLOUT_BYTES = 2_500_000
"""Room for embedded rollouts."""
MEMORY_BYTES = 1_000_000
"""Room for embedded memory entries."""
STEPS_SHOWN = 8
GROUPS_PER_STEP = 4
SIBLINGS_SHOWN = 4
PROMPT_CHARACTERS = 6000


def collect(run: Path) -> dict[str, Any]:
    """All data of the report as JSON values, small enough to embed.

    ``run`` without config.yaml or metrics.jsonl: `UserError`.
    """
    text, rows = _read(run)
    return {
        "name": run.name,
        "config": text,
        "settings": yaml.safe_load(text),
        "phases": _phases(rows),
        "evaluations": _evaluations(rows),
        "alarms": _alarms(rows),
        "rollouts": _rollouts(run / "rollouts.jsonl.zst", rows),
        "memory": _memory(run / "memory"),
    }


def collect_summary(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Config and evaluations of a run, as `collect` has them under ``settings`` and ``evaluations``."""
    text, rows = _read(run)
    return yaml.safe_load(text), _evaluations(rows)


def _read(run: Path) -> tuple[str, list[MetricRow]]:
    for name in ("config.yaml", "metrics.jsonl"):
        if not (run / name).exists():
            raise UserError(
                f"{run} holds no {name}, so there is nothing to report.\n"
                f"Give the folder of a run that has made at least one step, for example runs/<name>."
            )
    text = (run / "config.yaml").read_text(encoding="utf-8")
    return text, read_metrics(run / "metrics.jsonl")


def _evaluations(rows: Iterable[MetricRow]) -> list[dict[str, Any]]:
    """Evaluation rows in order, flat."""
    return [{"phase": r.phase, "step": r.step, **r.values} for r in rows if r.kind == EVAL]


def _phases(rows: Iterable[MetricRow]) -> dict[str, dict[str, Any]]:
    """Per phase the steps, and one column per number with None where a step lacks it."""
    by_phase: dict[str, list[MetricRow]] = defaultdict(list)
    for row in rows:
        if row.kind == STEP:
            by_phase[row.phase].append(row)
    return {phase: _columns(steps) for phase, steps in by_phase.items()}


def _columns(steps: Sequence[MetricRow]) -> dict[str, Any]:
    records = [{**row.values, **{f"timing/{k}": v for k, v in row.timing.items()}} for row in steps]
    names = sorted({name for record in records for name in record})
    columns = {name: [_number(record.get(name)) for record in records] for name in names}
    return {"steps": [row.step for row in steps], "columns": columns}


def _number(value: Any) -> float | None:
    """Six significant digits; NaN and infinity were logged as strings and leave a gap."""
    return float(f"{value:.6g}") if isinstance(value, int | float) else None


def _alarms(rows: Iterable[MetricRow]) -> list[dict[str, Any]]:
    """One item per kind and phase: how often, from when to when, and the last finding."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row.kind != ALARM:
            continue
        item = found.setdefault(
            (row.phase, row.values["alarm"]), {"phase": row.phase, "first": row.step, "count": 0}
        )
        item.update(row.values, last=row.step, count=item["count"] + 1)
    return sorted(found.values(), key=lambda item: -item["count"])


def _rollouts(path: Path, rows: Sequence[MetricRow]) -> list[dict[str, Any]]:
    """A sample of trajectories: steps spread over the run and the last evaluations, mixed groups first."""
    if not path.exists():
        return []
    steps = _spread([(r.phase, r.step) for r in rows if r.kind == STEP and r.phase != "sft"])
    evals = [(f"eval-{r.phase}-{r.values['name']}", r.step) for r in rows if r.kind == EVAL]
    wanted = [*steps, *evals[:2], *evals[-2:]]
    groups: dict[tuple[str, int], dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rollouts(path, wanted, whole_prompts=False):
        groups[row["phase"], row["step"]][row["group"]].append(row)
    picked = {key: _pick(list(of_step.values())) for key, of_step in groups.items()}
    return _fit(picked)


def _spread(steps: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    if len(steps) <= STEPS_SHOWN:
        return list(steps)
    last = len(steps) - 1
    return [steps[round(i * last / (STEPS_SHOWN - 1))] for i in range(STEPS_SHOWN)]


def _pick(groups: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Groups in which some won and some lost come first: there the advantages say something."""

    def mixed(group: list[dict[str, Any]]) -> bool:
        return len({row["outcome"]["success"] for row in group}) > 1

    if all(len(group) == 1 for group in groups):
        return groups[: GROUPS_PER_STEP * 2]
    ordered = sorted(groups, key=lambda group: not mixed(group))
    return [_both_outcomes(group) for group in ordered[:GROUPS_PER_STEP]]


def _both_outcomes(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    won = [row for row in group if row["outcome"]["success"]]
    lost = [row for row in group if not row["outcome"]["success"]]
    half = SIBLINGS_SHOWN // 2
    kept = won[: max(half, SIBLINGS_SHOWN - len(lost))] + lost[: max(half, SIBLINGS_SHOWN - len(won))]
    return sorted(kept, key=lambda row: row["index"])


def _fit(picked: Mapping[tuple[str, int], list[list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """The first group of every step, then the second, ... until the room is used up."""
    shown: list[dict[str, Any]] = []
    room = ROLLOUT_BYTES
    deepest = max((len(groups) for groups in picked.values()), default=0)
    for depth in range(deepest):
        for groups in picked.values():
            for row in groups[depth] if depth < len(groups) else []:
                small = _shrink(row)
                size = len(json.dumps(small, ensure_ascii=False).encode())
                if size <= room:
                    shown.append(small)
                    room -= size
    order = {key: number for number, key in enumerate(picked)}
    return sorted(shown, key=lambda r: (order[r["phase"], r["step"]], r["group"], r["index"]))


def _shrink(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "turns": [_shrink_turn(turn) for turn in row["turns"]]}


def _shrink_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    credit = turn["advantages"]
    constant = credit is not None and len(set(credit)) == 1
    return {
        "stage": turn["stage"],
        "step": turn["step"],
        "extends": turn["extends"],
        "prompt": _clip(turn["prompt"]),
        "pieces": turn["pieces"],
        "logprobs": [round(x, 3) for x in turn["logprobs"]],
        "advantages": credit[:1] if constant else credit,
        "finish_reason": turn["finish_reason"],
        "fault": turn["fault"],
    }


def _clip(text: str) -> str:
    if len(text) <= PROMPT_CHARACTERS:
        return text
    half = PROMPT_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out here ...]\n{text[-half:]}"


def _memory(folder: Path) -> dict[str, Any] | None:
    """The newest snapshot of the bank, its most used entries when not all fit."""
    snapshots = sorted(folder.glob("*.json"), key=lambda file: (not file.stem.startswith("sft-"), file.stem))
    if not snapshots:
        return None
    state = json.loads(snapshots[-1].read_text(encoding="utf-8"))
    entries = state.get("entries", [])
    room = MEMORY_BYTES
    shown = []
    for entry in sorted(entries, key=lambda e: -e["uses"]):
        room -= len(json.dumps(entry, ensure_ascii=False).encode())
        if room < 0:
            break
        shown.append(entry)
    return {"snapshot": snapshots[-1].stem, "total": len(entries), "entries": shown}
