"""The command line as a user meets it: exit codes, messages, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launch.cli import main
from trainer.config import Config

PARTS = "tests.launch.parts"
SCREEN = 24
REPOSITORY = Path(__file__).parents[2]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a command that must end with code 2, checked to be one screen without traceback."""
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert "Traceback" not in message
    assert len(message.splitlines()) <= SCREEN
    return message


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in an empty folder, which every refused one must leave empty."""

    def start(config: Config) -> int:
        raise AssertionError(f"a run of {config.run.folder} was started")

    monkeypatch.setattr("launch.train.start", start)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("train.stesp=3", ["train.stesp=3", "no such option", "Did you mean train.steps?"]),
        ("agent.topk=3", ["agent.topk=3", "Did you mean agent.top_k?", "max_new_tokens"]),
        ("agent.top_k=three", ["agent.top_k", "'three'", "expected int"]),
        ("train.steps=1.5", ["train.steps", "1.5", "expected int"]),
        ("run.resume=yess", ["run.resume", "'yess'", "expected true or false"]),
        ("evaluation.temperatures=[1.0,hot]", ["evaluation.temperatures", "'hot'", "list of float"]),
        ("teacher.knowledge=sen", ["'sen'", "one of seen, full", "Did you mean seen?"]),
        ("advantage.epsilon=0", ["advantage.epsilon=0", "Did you mean advantage.eps?"]),
        ("advantage=gropo", ["advantage=gropo", "Did you mean grpo?", "rloo"]),
        ("experiment=household/memharnes", ["Did you mean household/memharness?"]),
        ("rewards=[outcom]", ["rewards=outcom", "Did you mean outcome?"]),
        ("rewards.outcom.weight=2", ["rewards.outcom", "_target_", "Did you mean rewards.outcome?"]),
        ("polcy.x=1", ["polcy", "Did you mean policy?"]),
        ("+train.extra=1", ["+train.extra=1", "neither added nor deleted"]),
        ("~train.steps", ["~train.steps", "neither added nor deleted"]),
        ("train.steps", ["train.steps", "key=value"]),
        ("train.steps=1,2", ["2 combinations", "-m"]),
        ("train.group_size=1", ["train.group_size=1", "at least 2"]),
        ("engine.processes=0", ["engine.processes=0", "at least 1"]),
        ("memory.embedder=x", ["memory.embedder=x", "Remove it"]),
        ("agent._target_=agents.react.Reakt", ["agents.react.Reakt", "did you mean agents.react.React"]),
        ("agent._target_=agnets.react.React", ["no module 'agnets.react'"]),
        ("env.data=???", ["env.data", "missing"]),
        ("experiment=alfworld/memharness_tiny", ["env.data", "missing"]),
        (f"rewards.mine._target_={PARTS}.Short", ["rewards.mine.limit", "missing", "int"]),
    ],
)
def test_a_wrong_option_is_named_with_its_fix(
    option: str, expected: list[str], capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    message = refused(capsys, "train", option)
    for part in expected:
        assert part in message
    assert not list(run_dir.iterdir())


def test_all_wrong_options_of_the_sections_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "train", "train.stesp=3", "run.seed=x", "evaluation.evry=1")
    assert message.count("\n  ") >= 3
    assert all(key in message for key in ("train.stesp", "run.seed", "evaluation.evry"))


def test_every_job_of_a_sweep_is_checked_before_the_first_starts(
    capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    message = refused(capsys, "train", "-m", "train.group_size=8,1")
    assert "train.group_size=1" in message
    assert not list(run_dir.iterdir())


NO_RUNS = (["eval"], ["report"], ["eval", "run=nowhere"], ["report", "run=nowhere"])


@pytest.mark.parametrize("command", NO_RUNS)
def test_commands_on_a_run_need_its_folder(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, *command)
    assert "run=runs/" in message or "nowhere" in message


def test_play_shows_the_expert_winning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "env=household", "--gold", "--task", "1"]) == 0
    assert "won" in capsys.readouterr().out


def test_play_refuses_a_task_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "play", "--task", "100000")


def test_a_config_error_imports_no_torch() -> None:
    program = (
        "import sys; from launch.cli import main; code = main(['train', 'train.stesp=1']); "
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules); sys.exit(f'{code} {sorted(heavy)}')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "2 []"


def test_checking_a_good_config_imports_no_torch_either() -> None:
    program = (
        "import sys; from trainer.config_compose import compose_config; "
        "[compose_config([f'experiment=household/{name}']) for name in ('memharness', 'smollm2')]; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


def test_help_lists_the_options_of_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    for line in (
        "train.group_size",
        "agent=memharness  agents.memharness.MemHarness",
        "policy.sampling.temperature",
        "experiment=household/memharness",
    ):
        assert line in text
    (top_k,) = (line.split() for line in text.splitlines() if line.strip().startswith("agent.top_k"))
    assert top_k[1:3] == ["3", "int"]
    assert top_k[3:]


def test_help_lists_the_choices_of_the_users_folder(
    capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    file = run_dir / "mine" / "rewards" / "short.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"short:\n  _target_: {PARTS}.Short\n  limit: 7  # most steps that pay\n")
    assert main(["train", "--help", "--config-dir", str(run_dir / "mine")]) == 0
    text = capsys.readouterr().out
    assert "rewards=short" in text
    assert "most steps that pay" in text
    assert "rewards.short.unit" in text
