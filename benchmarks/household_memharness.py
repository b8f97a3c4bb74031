"""Does the embedded default learn? Held-out success before and after GRPO, over several seeds.

Runs `memgrpo train experiment=household/memharness run.seed=S` for each seed, one after another (each
run goes on from its last checkpoint when this script is started again), and compares the evaluations
of metrics.jsonl after the warm start and after the last update.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from figures import Figures, print_figures, write_result

from trainer.logging import EVAL, read_metrics
from trainer.statistics import mean_interval

TARGETS = {"sampled_t1": 25.0, "greedy": 15.0}
QUICK = ["train.steps=2", "train.tasks_per_step=2", "sft.steps=10", "sft.episodes=64", "evaluation.tasks=6"]


def run(seed: int, folder: Path, extra: list[str]) -> dict[str, Any]:
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


def gains(runs: list[dict[str, Any]]) -> tuple[Figures, dict[str, Any]]:
    """Mean gain in percentage points of each evaluation, and its values and 95 % interval over seeds."""
    figures, detail = {}, {}
    for name, target in TARGETS.items():
        of_runs = [run["success"][name] for run in runs]
        each = [s["end"] - s["start"] for s in of_runs]
        interval = mean_interval(each)[1:] if len(each) > 1 else None  # one seed says nothing of others
        mean = fmean(each)
        figures[f"gain_{name}"] = (mean, "points", f">= {target:g}")
        detail[name] = {
            "start": [s["start"] for s in of_runs],
            "end": [s["end"] for s in of_runs],
            "gain": each,
            "gain_mean": mean,
            "gain_interval95": interval,
        }
    return figures, detail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few updates of one seed; writes nothing")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/household_memharness"))
    parser.add_argument("overrides", nargs="*", help="further options of memgrpo train")
    options = parser.parse_args()
    seeds = options.seeds[:1] if options.quick else options.seeds
    folder = options.runs / "quick" if options.quick else options.runs
    extra = [*(QUICK if options.quick else []), *options.overrides]
    runs: list[dict[str, Any]] = []
    for seed in seeds:
        runs.append(run(seed, folder, extra))
        figures, detail = gains(runs)
        if not options.quick:  # after every seed, so that an interrupted study leaves what it has
            write_result(
                "household_memharness",
                "python benchmarks/household_memharness.py",
                ("torch", "transformers"),
                figures,
                runs,
                success_percent=detail,
            )
    print_figures(figures)


if __name__ == "__main__":
    main()
