"""Does the embedded default learn? Held-out success before and after GRPO, over several seeds.

Runs `memgrpo train experiment=household/memharness run.seed=S` for each seed, one after another (each
run goes on from its last checkpoint when this script is started again), and compares the evaluations
of metrics.jsonl after the warm start and after the last update.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import machine, versions
from trainer.logging import EVAL, read_metrics
from trainer.statistics import mean_interval

RESULT = Path(__file__).parent / "results" / "household_memharness.json"
TARGETS = {"sampled_t1": 25.0, "greedy": 15.0}
QUICK = ["train.steps=2", "train.tasks_per_step=2", "sft.steps=10", "sft.episodes=64", "evaluation.tasks=6"]


def run(seed: int, folder: Path, extra: list[str]) -> dict[str, object]:
    """One training run; success in percent by evaluation name, at the start and at the end."""
    command = [sys.executable, "-m", "launch.cli", "train", "experiment=household/memharness"]
    command += [f"run.seed={seed}", f"run.dir={folder}", f"run.name=seed{seed}", *extra]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    rows = [row for row in read_metrics(folder / f"seed{seed}" / "metrics.jsonl") if row.kind == EVAL]
    first, last = min(row.step for row in rows), max(row.step for row in rows)
    success = {
        name: {
            when: 100
            * next(r.values["success_rate"] for r in rows if r.step == step and r.values["name"] == name)
            for when, step in (("start", first), ("end", last))
        }
        for name in TARGETS
    }
    return {
        "seed": seed,
        "seconds": time.perf_counter() - started,
        "success": success,
        "command": command[1:],
    }


def summarise(runs: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    """Mean gain in percentage points with its 95 % interval over seeds, for each evaluation."""
    figures: dict[str, dict[str, object]] = {}
    for name, target in TARGETS.items():
        of_runs = [r["success"][name] for r in runs]  # type: ignore[index]
        gains = [s["end"] - s["start"] for s in of_runs]
        mean, low, high = mean_interval(gains) if len(gains) > 1 else (gains[0], gains[0], gains[0])
        figures[f"gain_{name}"] = {
            "value": mean,
            "unit": "points",
            "target": f">= {target:g}",
            "interval95": [low, high],
            "start": [s["start"] for s in of_runs],
            "end": [s["end"] for s in of_runs],
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few updates of one seed; writes nothing")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/household_memharness"))
    parser.add_argument("overrides", nargs="*", help="further options of memgrpo train")
    arguments = parser.parse_args()
    seeds = arguments.seeds[:1] if arguments.quick else arguments.seeds
    folder = arguments.runs / "quick" if arguments.quick else arguments.runs
    runs = [run(seed, folder, [*(QUICK if arguments.quick else []), *arguments.overrides]) for seed in seeds]
    figures = summarise(runs)
    if not arguments.quick:
        record = {"machine": machine(), "versions": versions(), "runs": runs, "figures": figures}
        RESULT.write_text(json.dumps(record, indent=1) + "\n")
    for name, figure in figures.items():
        print(f"FIGURE {name} {figure['value']:.1f} {figure['unit']} target {figure['target']}")


if __name__ == "__main__":
    main()
