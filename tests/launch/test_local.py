"""Processes on this machine: their environment, failures, signals, and that none outlives its launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from launch.local import run_processes

REPOSITORY = Path(__file__).parents[2]
WORKER = (sys.executable, str(REPOSITORY / "tests" / "launch" / "rank.py"))


@pytest.fixture(autouse=True)
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def reports(folder: Path, count: int = 2) -> list[dict[str, Any]]:
    """What every rank saw, once all have started."""
    while len(list(folder.glob("*.json"))) < count:
        time.sleep(0.01)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def launch(folder: Path, mode: str) -> subprocess.Popen[str]:
    """A launcher of its own, so that it can be killed."""
    program = (
        f"import sys; from launch.local import run_processes; "
        f"sys.exit(run_processes({{'folder': {str(folder)!r}, 'mode': {mode!r}}}, 2, {WORKER!r}))"
    )
    return subprocess.Popen([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE)


def test_ranks_get_the_config_and_the_environment_of_torchrun(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_processes({"folder": str(tmp_path), "mode": "end"}, 2, WORKER) == 0
    first, second = reports(tmp_path)
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert first["WORLD_SIZE"] == second["WORLD_SIZE"] == "2"
    assert (first["MASTER_ADDR"], first["MASTER_PORT"]) == (second["MASTER_ADDR"], second["MASTER_PORT"])
    assert int(first["OMP_NUM_THREADS"]) == max(1, (os.cpu_count() or 1) // 2)
    assert capfd.readouterr().out == "rank 0 speaks\n"


def test_one_failing_rank_ends_all_and_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_processes({"folder": str(tmp_path), "mode": "fail"}, 2, WORKER, grace=0.2) == 3
    assert "rank 1 of 2 ended with code 3:\nrank 1 has a reason" in capfd.readouterr().err
    assert not any(alive(report["pid"]) for report in reports(tmp_path))


def test_a_signal_reaches_every_rank(tmp_path: Path) -> None:
    launcher = launch(tmp_path, "wait")
    ranks = reports(tmp_path)
    # Once: a second signal could meet a rank whose interpreter is already shutting down.
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait() == 9
    assert not any(alive(report["pid"]) for report in ranks)


def test_ranks_die_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    launcher = launch(tmp_path, "follow")
    ranks = reports(tmp_path)
    launcher.kill()
    launcher.wait()
    while any(alive(report["pid"]) for report in ranks):
        time.sleep(0.01)
