"""From a command line to plain values: Hydra composes the files of `configs/` and the overrides."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from memory.errors import UserError
from trainer.config import OPTIONAL_SECTIONS, SECTIONS, Config
from trainer.config_check import ConfigError, check_config
from trainer.config_types import did_you_mean, unknown_key

PRIMARY = "train"
_EXAMPLE = "Expected key=value, for example train.steps=200."


def config_folder() -> Path:
    """The folder of the config files that come with memgrpo."""
    spec = importlib.util.find_spec("configs")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("The folder 'configs' of memgrpo is missing. Install memgrpo again.")
    return Path(next(iter(spec.submodule_search_locations)))


def register_sections() -> None:
    """Offer the defaults of the fixed sections to Hydra, where train.yaml takes them up."""
    defaults = {
        name: None if name in OPTIONAL_SECTIONS else _plain(asdict(section()))
        for name, section in SECTIONS.items()
    }
    ConfigStore.instance().store(name="sections", node=defaults)


def groups(config_dir: str | None = None) -> dict[str, list[str]]:
    """Every config group and its choices, those of the user's own folder included."""
    found: dict[str, list[str]] = {}
    for root in filter(None, (str(config_folder()), config_dir)):
        for file in sorted(Path(root).glob("*/**/*.yaml")):
            group, *choice = file.relative_to(root).with_suffix("").parts
            found.setdefault(group, []).append("/".join(choice))
    return found


def compose_config(overrides: Sequence[str], config_dir: str | None = None) -> Config:
    """The checked config of a command line. Any mistake in it: `ConfigError`."""
    return check_config(compose_values(overrides, config_dir))


def compose_values(overrides: Sequence[str], config_dir: str | None = None) -> dict[str, Any]:
    """The composed values, resolved and unchecked."""
    register_sections()
    wanted = normalise(overrides, config_dir)
    if config_dir is not None:
        wanted.append(f"hydra.searchpath=[file://{Path(config_dir).absolute()}]")
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(config_folder())):
            return resolve(compose(PRIMARY, overrides=wanted))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError([_first_lines(error)]) from error


def resolve(composed: DictConfig) -> dict[str, Any]:
    """Plain values with every ``${...}`` replaced."""
    try:
        values = OmegaConf.to_container(composed, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError([_first_lines(error)]) from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if key != "hydra"}


def load_config(file: Path, overrides: Sequence[str] = (), config_dir: str | None = None) -> Config:
    """The config saved with a run, with some values or whole groups replaced."""
    if not file.is_file():
        raise UserError(f"{file} does not exist. Expected the folder of a run, which holds config.yaml.")
    saved = DictConfig(yaml.safe_load(file.read_text(encoding="utf-8")))
    known = groups(config_dir)
    for override in _parsed(normalise(overrides, config_dir)):
        key = override.key_or_group
        if key in known and "." not in key:
            fresh = compose_values(["experiment=null", str(override.input_line)], config_dir)
            saved[key] = fresh.get(key)
        else:
            OmegaConf.update(saved, key, override.value(), force_add=True)
    return check_config(resolve(saved))


def expand_sweep(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every job of a grid sweep, in the order Hydra's basic sweeper runs them."""
    choices = [
        [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [str(override.input_line)]
        for override in _parsed(overrides)
    ]
    return [list(job) for job in itertools.product(*choices)]


def normalise(overrides: Sequence[str], config_dir: str | None = None) -> list[str]:
    """Overrides as Hydra gets them, after a check of their form and of every group choice.

    Values are passed as ``++key=value``: whether the key exists is decided by `check_config` alone,
    which knows the parameters of every component.
    """
    known = groups(config_dir)
    problems: list[str] = []
    wanted = []
    for override in _parsed(overrides):
        line, key = str(override.input_line), override.key_or_group
        if key == "experiment":
            line = line.lstrip("+")
        elif line[0] in "+~":
            mend = "set it to null, or choose less" if line[0] == "~" else f"write {line.lstrip('+')}"
            problems.append(
                f"{line}: keys are neither added nor deleted on the command line.\n"
                f"    For an option that exists {mend}; new keys go into an experiment file."
            )
            continue
        if key in known and "=null" in line and override.value() is None:
            # Hydra's way to choose nothing in a group.
            line = f"~{key}"
        elif key in known:
            problems += _wrong_choices(key, override, known[key])
        elif "/" in key:
            problems.append(unknown_key(key, known))
        elif not key.startswith("hydra"):
            line = f"++{line}"
        wanted.append(line)
    if problems:
        raise ConfigError(problems)
    return wanted


def _parsed(overrides: Sequence[str]) -> list[Override]:
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise ConfigError([f"{_first_lines(error)}\n    {_EXAMPLE}"]) from error
    return parsed


def _wrong_choices(group: str, override: Override, choices: Sequence[str]) -> list[str]:
    values = list(override.sweep_string_iterator()) if override.is_sweep_override() else [override.value()]
    chosen = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [
        f"{group}={item}: no such choice.{did_you_mean(str(item), choices)}\n"
        f"    {group} has: {', '.join(choices)}\n"
        f"    A component of your own: a YAML file in <folder>/{group}/ and --config-dir <folder>."
        for item in chosen
        if item is not None and str(item) not in (*choices, "null") and not str(item).startswith("[")
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _first_lines(error: Exception) -> str:
    return "\n    ".join(line for line in str(error).splitlines() if line.strip())
