"""`memgrpo train`: one run, or one for each combination of a sweep, in one process or several."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Sequence

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
    if any(len(job) != 1 for job in [expand_sweep(overrides)]):
        raise UserError("Several values for one option: add -m to run one job for each.")
    return start(compose_config(overrides, config_dir))


def run_many(overrides: Sequence[str], config_dir: str | None) -> int:
    """One run for each combination of the values, by Hydra's multirun, in `run.dir/run.name/<number>`.

    Every combination is checked before the first one starts.
    """
    jobs = expand_sweep(overrides)
    for job in jobs:
        dry = compose_config(job, config_dir).run.dry
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig

    codes: list[int] = []

    def run_job(composed: DictConfig) -> None:
        config = _named(check_config(resolve(composed)), str(HydraConfig.get().job.num))
        print(f"job {len(codes) + 1} of {len(jobs)}: {' '.join(HydraConfig.get().overrides.task)}", flush=True)
        codes.append(start(config))

    register_sections()
    arguments = ["--multirun", *normalise(overrides, config_dir)]
    if config_dir is not None:
        arguments += ["--config-dir", config_dir]
    with tempfile.TemporaryDirectory() as scratch:
        if dry:
            arguments.append(f"hydra.sweep.dir={scratch}")
        _with_arguments(arguments, hydra.main("1.3", str(config_folder()), PRIMARY)(run_job))
    return max(codes, default=0)
