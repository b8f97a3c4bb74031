from __future__ import annotations

import os
import random
from pathlib import Path

from tests.trainer.synthetic_run import KINDS, TOKENIZER, played
from trainer.metrics import Played
from trainer.rollout_log import RolloutLog, read_rollouts


def write(log: RolloutLog, step: int, groups: list[Played]) -> None:
    log.write(
        "grpo", step, [p.group for p in groups], [p.report for p in groups], [p.advantages for p in groups]
    )


def test_every_turn_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.zst"
    groups = [played(random.Random(1), kind, 0.5) for kind in KINDS]
    write(RolloutLog(path, TOKENIZER), 3, groups)
    rows = list(read_rollouts(path))
    assert len(rows) == sum(len(p.group) for p in groups)
    for row in rows:
        group = groups[row["group"]]
        trajectory, credit = group.group[row["index"]], group.advantages.tokens[row["index"]]
        assert credit is not None
        assert row["reward"] == group.report.total[row["index"]]
        assert row["parts"]["format"] == group.report.parts["format"][row["index"]]
        assert row["reads"][0]["guidance"] == trajectory.memory_reads[0].guidance
        for number, (turn, saved) in enumerate(zip(trajectory.turns, row["turns"], strict=True)):
            assert saved["prompt_ids"] == list(turn.prompt_ids)
            assert saved["prompt"] == TOKENIZER.decode(turn.prompt_ids)
            assert saved["completion_ids"] == list(turn.completion_ids)
            assert saved["completion"] == turn.text
            assert saved["logprobs"] == [round(x, 6) for x in turn.logprobs]
            assert saved["advantages"] == [round(x, 6) for x in credit[number]]


def test_a_prompt_that_goes_on_from_an_earlier_turn_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.zst"
    write(RolloutLog(path, TOKENIZER), 1, [played(random.Random(1), KINDS[0], 0.5)])
    turns = next(read_rollouts(path, whole_prompts=False))["turns"]
    first, second = (turn for turn in turns if turn["stage"] == "act" and turn["step"] < 2)
    assert first["extends"] is None
    assert turns[second["extends"]] is first
    assert second["prompt_ids"] == list(TOKENIZER(second["prompt"], add_special_tokens=False).input_ids)


def test_a_step_is_a_frame_so_that_cutting_at_its_end_and_going_on_works(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.zst"
    log = RolloutLog(path, TOKENIZER)
    draw = random.Random(2)
    steps = [[played(draw, kind, 0.5) for kind in KINDS] for _ in range(3)]
    write(log, 1, steps[0])
    size = path.stat().st_size
    write(log, 2, steps[1])
    write(log, 3, steps[2])
    whole = path.read_bytes()

    os.truncate(path, size)
    assert {row["step"] for row in read_rollouts(path)} == {1}
    resumed = RolloutLog(path, TOKENIZER)
    write(resumed, 2, steps[1])
    write(resumed, 3, steps[2])
    assert path.read_bytes() == whole


def test_a_frame_cut_short_by_a_kill_gives_only_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.zst"
    log = RolloutLog(path, TOKENIZER)
    draw = random.Random(2)
    write(log, 1, [played(draw, KINDS[0], 0.5)])
    write(log, 2, [played(draw, KINDS[1], 0.5, size=64)])
    os.truncate(path, path.stat().st_size - 100)
    rows = list(read_rollouts(path))
    assert [row["step"] for row in rows[:4]] == [1] * 4
    assert len(rows) < 68


def test_steps_are_picked_by_phase_and_number(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl.zst"
    log = RolloutLog(path, TOKENIZER)
    for step in (1, 10, 11):
        write(log, step, [played(random.Random(step), KINDS[0], 0.5)])
    assert {row["step"] for row in read_rollouts(path, [("grpo", 1), ("eval", 11)])} == {1}
