"""`memgrpo train`: one run, or one for each combination of a sweep, in one process or several."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from unittest import mock

from memory.errors import UserError
from trainer.config import Config
from trainer.config_check import check_config
from trainer.config_compose import (
    PRIMARY,
    compose_config,
    config_folder,
    expand_sweep,
    normalise,
    register_sections,
    resolve,
)


def run_one(overrides: Sequence[str], config_dir: str | None) -> int:
    """Check the config, then train."""
    jobs = expand_sweep(overrides)
    if len(jobs) > 1:
        raise UserError(
            f"The options hold {len(jobs)} combinations of values.\n"
            "  Add -m to run one job for each, or write a list as key=[a,b]."
        )
    return start(compose_config(overrides, config_dir))


def run_many(overrides: Sequence[str], config_dir: str | None) -> int:
    """One run for each combination of values, by Hydra's multirun, in ``run.dir/run.name/<number>``.

    Every combination is checked before the first one starts; the first failure ends the sweep.
    """
    configs = [compose_config(job, config_dir) for job in expand_sweep(overrides)]
    if len({config.run.folder for config in configs}) > 1:
        raise UserError("A sweep has one run.name and run.dir; its jobs are told apart by their number.")
    arguments = ["--multirun", *normalise(overrides, config_dir)]
    if config_dir is not None:
        arguments += ["--config-dir", config_dir]
    with tempfile.TemporaryDirectory() as scratch:
        if all(config.run.dry for config in configs):
            arguments.append(f"hydra.sweep.dir={scratch}")
        _sweep(arguments, len(configs))
    return 0


def start(config: Config) -> int:
    """Train in this process, or in ``engine.processes`` new ones on this machine."""
    if config.processes > 1 and "WORLD_SIZE" not in os.environ:
        from launch.local import run_processes

        return run_processes(config.resolved, config.processes)
    return work(config)


def work(config: Config) -> int:
    """Train as one rank, in this process."""
    if config.run.dry:
        from trainer.dry import dry_run

        plan = dry_run(config)
        if os.environ.get("RANK", "0") == "0":
            print(plan)
        return 0
    from trainer.run import train

    train(config)
    return 0


class _JobFailed(SystemExit):
    """Ends Hydra's sweep: Hydra reports an ordinary exception itself, without its traceback."""


def _sweep(arguments: Sequence[str], count: int) -> None:
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig

    failures: list[BaseException] = []

    def run_job(composed: DictConfig) -> None:
        job = HydraConfig.get()
        config = check_config(resolve(composed))
        number = os.path.basename(job.runtime.output_dir)
        name = f"{config.run.name}/{number}"
        named = {**config.resolved, "run": {**config.resolved["run"], "name": name}}
        given = " ".join(line.lstrip("+") for line in job.overrides.task)
        print(f"job {job.job.num} ({count} in all): {given}", flush=True)
        try:
            code = start(check_config(named))
            if code:
                raise UserError(f"job {job.job.num} ended with code {code}: {given}")
        except Exception as error:
            failures.append(error)
            raise _JobFailed(1) from error

    register_sections()
    main = hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=PRIMARY)
    run: Callable[[], None] = main(run_job)
    try:
        with mock.patch.object(sys, "argv", [sys.argv[0], *arguments]):
            run()
    except _JobFailed:
        raise failures[0] from None
