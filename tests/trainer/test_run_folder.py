from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped,unused-ignore]

from trainer.run_folder import RunFolder, RunFolderError, config_differences

CONFIG: dict[str, Any] = {
    "run": {"name": "a", "resume": False},
    "grpo": {"steps": 10, "lr": 1e-5},
    "policy": {"model": "tiny", "temperature": 1.0},
}


def changed(**grpo: Any) -> dict[str, Any]:
    return {**CONFIG, "grpo": {**CONFIG["grpo"], **grpo}}


def test_a_new_folder_holds_the_config_and_the_subfolders(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "runs" / "a", CONFIG) as run:
        assert run.resume_from is None
        assert yaml.safe_load(run.config_path.read_text()) == CONFIG
        assert run.checkpoints.is_dir() and run.memory.is_dir()


def test_the_same_config_is_taken_up_again_and_run_keys_do_not_count(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, CONFIG).close()
    with RunFolder.open(tmp_path, {**CONFIG, "run": {"name": "b", "resume": True}}) as run:
        assert run.changed == {}


def test_logs_without_a_checkpoint_are_started_over(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.metrics_path.write_text("{}\n")
        run.save_memory("grpo", 1, {"entries": []})
    with RunFolder.open(tmp_path, CONFIG) as run:
        assert not run.metrics_path.exists()
        assert list(run.memory.iterdir()) == []


def test_another_config_is_refused_with_the_keys_and_the_way_out(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, CONFIG).close()
    with pytest.raises(RunFolderError) as caught:
        RunFolder.open(tmp_path, changed(steps=20))
    message = str(caught.value)
    assert "grpo.steps: folder has 10, this command has 20" in message
    assert "run.resume=true" in message and "run.name" in message
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == CONFIG
    RunFolder.open(tmp_path, CONFIG).close()


def test_many_differences_still_fit_one_screen(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, CONFIG).close()
    with pytest.raises(RunFolderError, match=r"and 12 more"):
        RunFolder.open(tmp_path, changed(**{f"key{i}": i for i in range(32)}))


def test_resume_true_accepts_more_steps_and_keeps_the_old_config(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, CONFIG).close()
    with RunFolder.open(tmp_path, changed(steps=20), resume=True) as run:
        assert run.changed == {"grpo.steps": (10, 20)}
    assert yaml.safe_load((tmp_path / "config.1.yaml").read_text()) == CONFIG
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == changed(steps=20)


def test_resume_true_refuses_another_model(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, CONFIG).close()
    other = {**CONFIG, "policy": {"model": "smollm2", "temperature": 1.0}}
    with pytest.raises(RunFolderError, match=r"policy\.model: folder has 'tiny'"):
        RunFolder.open(tmp_path, other, resume=True)


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunFolderError, match=r"thesis\.tex"):
        RunFolder.open(tmp_path, CONFIG)


def test_a_second_opening_in_one_process_is_refused_until_close(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path, CONFIG)
    with pytest.raises(RunFolderError, match="this process"):
        RunFolder.open(tmp_path, CONFIG)
    run.close()
    RunFolder.open(tmp_path, CONFIG).close()


def test_the_lock_of_a_live_process_holds_and_dies_with_it(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import multiprocessing, sys, time
        from trainer.run_folder import RunFolder
        run = RunFolder.open({str(tmp_path)!r}, {CONFIG!r})
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        worker.start()
        print(worker.pid, flush=True)
        sys.stdin.read()
    """)
    repository = Path(__file__).parents[2]
    writer = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=repository,
    )
    assert writer.stdout is not None
    orphan = int(writer.stdout.readline())
    try:
        with pytest.raises(RunFolderError, match=f"process {writer.pid}"):
            RunFolder.open(tmp_path, CONFIG)
        writer.kill()
        writer.wait()
        RunFolder.open(tmp_path, CONFIG).close()  # although the forked worker is still alive
    finally:
        writer.kill()
        subprocess.run(["kill", "-9", str(orphan)], check=True)
        writer.communicate()


def test_rewind_cuts_known_logs_and_removes_later_ones(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.metrics_path.write_text("one\n")
        run.save_memory("grpo", 1, {"entries": [1]})
        sizes = run.log_sizes()
        with open(run.metrics_path, "a") as stream:
            stream.write("two\nthr")
        run.rollouts_path.write_bytes(b"frame")
        run.save_memory("grpo", 2, {"entries": [2]})
        run.rewind(sizes)
        assert run.metrics_path.read_text() == "one\n"
        assert not run.rollouts_path.exists()
        assert [file.name for file in run.memory.iterdir()] == ["grpo-000001.json"]


def test_rewind_refuses_a_log_shorter_than_the_checkpoint_says(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.metrics_path.write_text("one\n")
        with pytest.raises(RunFolderError, match="holds 4 bytes"):
            run.rewind({"metrics.jsonl": 40})
        assert run.metrics_path.read_text() == "one\n"


def test_differences_name_missing_keys() -> None:
    assert config_differences({"a": {"b": 1}}, {"a": {"c": 2}}) == {
        "a.b": (1, "<unset>"),
        "a.c": ("<unset>", 2),
    }
