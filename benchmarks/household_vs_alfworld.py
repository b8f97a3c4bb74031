"""Our household engine against the official ALFWorld engine, on the same games and commands.

Both sides play alternately in one process; CPU seconds are counted. A step includes the list of
admissible commands, on both sides. Needs the extra ``[alfworld]`` and the official games (below
$MEMGRPO_DATA or ../shared/data, unpacked into the cache on first use).

    python benchmarks/household_vs_alfworld.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from figures import print_figures, write_result

from envs.household import HouseholdWorld
from envs.household.oracle import OfficialGame, random_command
from envs.types import Task

ROOT = Path(__file__).resolve().parent.parent
QUICK_SECONDS = 30.0
FEWEST_COMMANDS = 3
OUR_REPEATS = 40
RESETS = 50


@dataclass(frozen=True)
class Run:
    """One game on both sides, in CPU seconds; ``load`` reads the file (ours: from the cache)."""

    game: str
    commands: int
    official_load: float
    official_reset: float
    official_steps: float
    our_load: float
    our_reset: float
    our_steps: float


def main() -> None:
    """Play, write the result unless ``--quick``, and print the figures last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="end within 50 s, write nothing")
    parser.add_argument("--games", type=int, default=10, help="games to play (default 10)")
    options = parser.parse_args()
    data = Path(os.environ.get("MEMGRPO_DATA", ROOT.parent / "shared" / "data")) / "alfworld"
    started = time.monotonic()
    world = HouseholdWorld(data=str(data), n_valid=20 if options.quick else 0)
    tasks = _tasks(world, options.games, options.quick)
    runs: list[Run] = []
    for task in tasks:
        if options.quick and runs and time.monotonic() - started > QUICK_SECONDS / 2:
            break
        deadline = started + QUICK_SECONDS if options.quick else float("inf")
        runs.append(play_both(task, commands=15 if options.quick else 30, seed=len(runs), deadline=deadline))
        print(_line(runs[-1]), flush=True)
    figures = _figures(runs)
    if not options.quick:
        write_result(
            "household_vs_alfworld",
            "python benchmarks/household_vs_alfworld.py",
            ("alfworld", "textworld", "fast-downward-textworld"),
            figures,
            [asdict(run) for run in runs],
            unit="CPU seconds of one process; steps: sum over the commands of a game",
        )
    print_figures(figures)


def _tasks(world: HouseholdWorld, count: int, quick: bool) -> Sequence[Task]:
    """Games of both validation splits; for ``--quick`` the smallest, since the official engine is slow."""
    tasks = [*world.tasks("valid_seen"), *world.tasks("valid_unseen")]
    if quick:
        return sorted(tasks, key=lambda task: Path(task.payload["file"]).stat().st_size)[:count]
    return random.Random(0).sample(tasks, min(count, len(tasks)))


def play_both(task: Task, commands: int, seed: int, deadline: float) -> Run:
    """A random walk in the official engine, then the same commands in ours, which must answer alike."""
    rng = random.Random(seed)
    clock = time.process_time
    begin = clock()
    official = OfficialGame(Path(task.payload["file"]))
    loaded = clock()
    reply = official.reset()
    reset = clock()
    official_steps, played, texts = 0.0, [], []
    for _ in range(commands):
        if len(played) >= FEWEST_COMMANDS and time.monotonic() > deadline:
            break
        command = random_command(reply.admissible, rng)
        step = clock()
        reply = official.step(command)
        official_steps += clock() - step
        played.append(command)
        texts.append((reply.text, reply.admissible))
    our_load, our_reset, our_steps = _play_ours(task, played, texts)
    return Run(
        task.task_id,
        len(played),
        loaded - begin,
        reset - loaded,
        official_steps,
        our_load,
        our_reset,
        our_steps,
    )


def _play_ours(
    task: Task, commands: Sequence[str], expected: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[float, float, float]:
    clock = time.process_time
    # The first environment may fill the cache on disk; the second reads from it.
    HouseholdWorld().make_env().reset(task)
    _forget_games()
    env = HouseholdWorld().make_env()
    begin = clock()
    env.reset(task)
    loaded = clock()
    for _ in range(RESETS):
        env.reset(task)
    reset = (clock() - loaded) / RESETS
    seconds = 0.0
    for _ in range(OUR_REPEATS):
        env.reset(task)
        step = clock()
        results = [env.step(command) for command in commands]
        seconds += clock() - step
    answers = [(result.observation.text, result.observation.admissible) for result in results]
    if answers != list(expected):
        raise SystemExit(f"the engines differ in {task.task_id}: the comparison means nothing")
    return loaded - begin, reset, seconds / OUR_REPEATS


def _forget_games() -> None:
    from envs.household import world

    world._game_from_file.cache_clear()


def _figures(runs: Sequence[Run]) -> dict[str, tuple[float, str, str]]:
    ratios = [run.official_steps / run.our_steps for run in runs]
    speeds = [run.commands / run.our_steps for run in runs]
    resets = [1000 * run.our_reset for run in runs]
    return {
        "steps_ratio": (statistics.median(ratios), "x", ">= 200"),
        "steps_per_second": (statistics.median(speeds), "steps/s", ">= 20000"),
        "reset_ms": (statistics.median(resets), "ms", "< 2"),
    }


def _line(run: Run) -> str:
    official, ours = run.official_steps / run.commands, run.our_steps / run.commands
    return (
        f"{run.game}: step {1000 * official:.1f} ms official, {1e6 * ours:.1f} us ours; "
        f"reset {run.official_reset:.2f} s, {1000 * run.our_reset:.3f} ms; "
        f"load {run.official_load:.2f} s, {1000 * run.our_load:.1f} ms"
    )


if __name__ == "__main__":
    main()
