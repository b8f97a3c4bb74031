"""Composition and checking of configs, and what the shipped files promise."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.react import React
from launch.help import comments
from tests.launch.parts import Short
from trainer.config_check import GIVEN, ConfigError, check_config
from trainer.config_compose import compose_config, config_folder, expand_sweep, groups, load_config
from trainer.parts import BuildError, Part
from trainer.signatures import import_target, read_signature

PARTS = "tests.launch.parts"


def nodes(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every node with a ``_target_`` in a config file."""
    if isinstance(value, Mapping):
        if "_target_" in value:
            yield path, value
        for key, item in value.items():
            yield from nodes(item, f"{path}.{key}")


CHOICES = [(g, c) for g, choices in groups().items() if g != "experiment" for c in choices]


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_a_shipped_choice_lists_and_explains_every_option_of_its_target(group: str, choice: str) -> None:
    text = (config_folder() / group / f"{choice}.yaml").read_text(encoding="utf-8")
    docs = comments(text)
    for path, node in nodes(yaml.safe_load(text), group):
        listed = {key for key in node if not key.startswith("_")}
        parameters = inspect.signature(import_target(node["_target_"])).parameters
        expected = set(parameters) - GIVEN.get(path, frozenset())
        assert listed == expected, path
        inner = path.removeprefix(group).lstrip(".")
        for key in listed:
            nested = isinstance(node[key], Mapping) and "_target_" in node[key]
            assert nested or docs[f"{inner}.{key}".lstrip(".")], f"{path}.{key} has no comment"


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_a_signature_read_from_source_is_the_one_python_sees(group: str, choice: str) -> None:
    for _, node in nodes(yaml.safe_load((config_folder() / group / f"{choice}.yaml").read_text()), group):
        seen = inspect.signature(import_target(node["_target_"])).parameters
        read = read_signature(node["_target_"]).options
        assert list(read) == list(seen)
        for name, parameter in seen.items():
            assert (read[name].default is None) == (parameter.default is parameter.empty)


@pytest.mark.parametrize("experiment", groups()["experiment"])
def test_a_shipped_experiment_is_a_valid_config(experiment: str) -> None:
    data = ["env.data=games"] if experiment.startswith("alfworld") else []
    config = compose_config([f"experiment={experiment}", *data])
    assert config.run.name == experiment.replace("/", "-").replace("_", "-")


def test_the_command_line_wins_over_the_experiment_and_that_over_the_defaults() -> None:
    config = compose_config(["experiment=household/grpo", "train.steps=7"])
    assert config.train.steps == 7
    assert config.memory.target == "memory.no_memory.NoMemory"
    changed = compose_config(["experiment=household/grpo", "memory=experience_bank"])
    assert changed.memory.target == "memory.bank.ExperienceBank"


def test_values_get_the_type_of_the_parameter() -> None:
    config = compose_config(["evaluation.temperatures=[0.5,1]", "train.learning_rate=1"])
    assert config.evaluation.temperatures == (0.5, 1.0)
    assert isinstance(config.train.learning_rate, float)
    lora = compose_config(["policy=hf", "policy.model.lora={r: 4}"]).policy.options["model"].options["lora"]
    assert (lora.r, lora.alpha) == (4, 32.0)


def test_a_part_of_ones_own_needs_only_its_dotted_path() -> None:
    options = [f"rewards.mine._target_={PARTS}.Short", "rewards.mine.limit=5", "rewards.mine.unit=turns"]
    config = compose_config(["rewards=[outcome,format]", *options])
    assert list(config.rewards) == ["outcome", "format", "mine"]
    reward = config.rewards["mine"].build()
    assert isinstance(reward, Short)
    assert (reward.limit, reward.unit) == (5, "turns")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("unit=step", "Did you mean steps?"),
        ("limit=2.5", "expected int"),
        ("limt=2", "Did you mean rewards.mine.limit?"),
    ],
)
def test_a_part_of_ones_own_is_checked_like_a_shipped_one(option: str, expected: str) -> None:
    base = [f"rewards.mine._target_={PARTS}.Short", "rewards.mine.limit=5"]
    with pytest.raises(ConfigError, match=expected.replace("?", r"\?")):
        compose_config([*base, f"rewards.mine.{option}"])


def test_a_folder_of_ones_own_adds_choices_and_experiments(tmp_path: Path) -> None:
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "short.yaml").write_text(f"short:\n  _target_: {PARTS}.Short\n  limit: 7\n")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /rewards: [outcome, short]\ntrain:\n  steps: 3\n"
    )
    config = compose_config(["experiment=mine"], str(tmp_path))
    assert list(config.rewards) == ["outcome", "short"]
    assert config.train.steps == 3


def test_a_misspelt_key_in_an_experiment_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ntrain:\n  stesp: 3\n")
    with pytest.raises(ConfigError, match=r"train\.stesp=3.*Did you mean train\.steps"):
        compose_config(["experiment=mine"], str(tmp_path))


def test_the_resolved_config_gives_the_same_config_again(tmp_path: Path) -> None:
    config = compose_config(["run.seed=5", "loss=dr_grpo"])
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(dict(config.resolved)))
    assert check_config(yaml.safe_load(file.read_text())) == config
    assert load_config(file) == config


def test_a_saved_config_takes_new_values_and_groups(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(dict(compose_config(["run.seed=5"]).resolved)))
    changed = load_config(file, ["evaluation.tasks=3", "memory=none"])
    assert changed.run.seed == 5
    assert changed.evaluation.tasks == 3
    assert changed.memory.target == "memory.no_memory.NoMemory"
    with pytest.raises(ConfigError, match=r"Did you mean evaluation\.tasks"):
        load_config(file, ["evaluation.task=3"])


def test_a_sweep_is_the_product_of_its_values_in_order() -> None:
    jobs = expand_sweep(["run.seed=0,1", "loss=grpo,dapo", "train.steps=3"])
    assert jobs == [
        ["run.seed=0", "loss=grpo", "train.steps=3"],
        ["run.seed=0", "loss=dapo", "train.steps=3"],
        ["run.seed=1", "loss=grpo", "train.steps=3"],
        ["run.seed=1", "loss=dapo", "train.steps=3"],
    ]


def test_sft_needs_a_teacher() -> None:
    with pytest.raises(ConfigError, match="found no teacher"):
        compose_config(["teacher=null"])
    assert compose_config(["teacher=null", "sft=null"]).sft is None


def test_a_missing_package_is_named_with_its_extra() -> None:
    if importlib.util.find_spec("deepspeed") is not None:
        pytest.skip("deepspeed is installed")
    with pytest.raises(BuildError, match=r"memgrpo\[deepspeed\]"):
        Part("rewards.big", f"{PARTS}.NeedsPackage", {}).build()


def test_a_value_that_a_part_refuses_is_named_with_the_part() -> None:
    with pytest.raises(BuildError, match=r"agent \(agents\.memharness\.MemHarness\)(.|\n)*sometimes"):
        Part("agent", "agents.memharness.MemHarness", {"query": "sometimes"}).build()


def test_a_partial_part_leaves_the_call_to_the_trainer() -> None:
    bound = Part("advantage", "trainer.advantage.grpo", {"eps": 0.5}, partial=True).build()
    assert bound.keywords == {"eps": 0.5}


def test_nested_parts_are_built_first() -> None:
    inner = Part("agent.inner", "agents.react.React", {})
    outer = Part("agent", "builtins.dict", {"agents": (inner,), "named": {"one": inner}}).build()
    assert isinstance(outer["agents"][0], React)
    assert isinstance(outer["named"]["one"], React)
