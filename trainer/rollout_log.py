"""rollouts.jsonl.zst: every turn of every trajectory, one zstd frame per step.

A line is one trajectory. A turn's ``prompt_ids`` and ``prompt`` are what comes after the prompt and
completion of turn ``extends`` (None: the whole prompt); `read_rollouts` puts them together again.
Frames let a resumed run cut the file at a step's end and go on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import zstandard

from agents.types import MemoryRead, Trajectory, Turn
from rewards.base import RewardReport
from trainer.types import GroupAdvantages, TokenAdvantages

_DIGITS = 6


class Decoder(Protocol):
    """The part of a transformers tokenizer that the log needs."""

    def decode(self, token_ids: list[int], /) -> Any: ...


class RolloutLog:
    """Appends the rollouts of a step to the log."""

    def __init__(self, path: Path, tokenizer: Decoder) -> None:
        self._path = path
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def write(
        self,
        phase: str,
        step: int,
        groups: Sequence[Sequence[Trajectory]],
        reports: Sequence[RewardReport],
        advantages: Sequence[GroupAdvantages | None],
    ) -> None:
        """Append one frame with all trajectories of a step, group by group.

        ``advantages[g]`` is None for a group that was not trained on (an evaluation).
        """
        lines = []
        rows = zip(groups, reports, advantages, strict=True)
        for number, (group, report, credit) in enumerate(rows):
            for index, trajectory in enumerate(group):
                row = {"phase": phase, "step": step, "group": number, "index": index}
                row |= self._trajectory(trajectory, credit.tokens[index] if credit else None)
                row |= _scores(report, credit, index)
                lines.append(_line(row))
        frame = zstandard.ZstdCompressor(level=3).compress(("\n".join(lines) + "\n").encode())
        with open(self._path, "ab") as stream:
            stream.write(frame)

    def _trajectory(self, trajectory: Trajectory, credit: TokenAdvantages | None) -> dict[str, Any]:
        failure = trajectory.failure
        return {
            "trajectory_id": trajectory.trajectory_id,
            "task": {
                "task_id": trajectory.task.task_id,
                "env": trajectory.task.env,
                "kind": trajectory.task.kind,
                "split": trajectory.task.split,
                "seed": trajectory.task.seed,
            },
            "outcome": {"score": trajectory.outcome.score, "success": trajectory.outcome.success},
            "stop_reason": str(trajectory.stop_reason),
            "failure": failure and {"owner": failure.owner, "kind": failure.kind, "message": failure.message},
            "turns": self._turns(trajectory.turns, credit),
            "steps": [
                {"step": s.step, "observation": s.observation, "action": s.action,
                 "reward": s.reward, "valid": s.valid}
                for s in trajectory.steps
            ],
            "reads": [_read(read) for read in trajectory.memory_reads],
        }

    def _turns(self, turns: Sequence[Turn], credit: TokenAdvantages | None) -> list[dict[str, Any]]:
        rows = []
        for number, turn in enumerate(turns):
            extends, rest = _continues(turns, number)
            rows.append({
                "stage": turn.stage,
                "step": turn.step,
                "extends": extends,
                "prompt_ids": rest,
                "prompt": str(self._tokenizer.decode(list(rest))),
                "completion_ids": turn.completion_ids,
                "completion": turn.text,
                "pieces": [self._piece(token) for token in turn.completion_ids],
                "logprobs": [round(x, _DIGITS) for x in turn.logprobs],
                "advantages": credit and [round(x, _DIGITS) for x in credit[number]],
                "policy_version": turn.policy_version,
                "finish_reason": turn.finish_reason,
                "fault": turn.fault,
            })
        return rows

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            self._pieces[token] = str(self._tokenizer.decode([token]))
        return self._pieces[token]


def read_rollouts(
    path: Path, steps: Iterable[tuple[str, int]] | None = None, *, whole_prompts: bool = True
) -> Iterator[dict[str, Any]]:
    """Rows of the log in order; ``steps`` picks (phase, step) pairs.

    With ``whole_prompts`` every turn has its whole prompt, else what the log holds (``extends``).
    The last line of a frame that a killed run left unfinished is dropped.
    """
    # Rows are told apart by how they begin: parsing all of a long log would take minutes.
    wanted = None if steps is None else tuple(_opening(phase, step) for phase, step in steps)
    with open(path, "rb") as stream:
        reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        for line in io.TextIOWrapper(reader, encoding="utf-8", newline="\n"):
            if not line.endswith("\n"):
                return
            if wanted is None or line.startswith(wanted):
                row: dict[str, Any] = json.loads(line)
                yield _whole_prompts(row) if whole_prompts else row


def _opening(phase: str, step: int) -> str:
    return _line({"phase": phase, "step": step}).removesuffix("}") + ","


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def _whole_prompts(row: dict[str, Any]) -> dict[str, Any]:
    turns = row["turns"]
    for turn in turns:
        if turn["extends"] is not None:
            base = turns[turn["extends"]]
            turn["prompt_ids"] = base["prompt_ids"] + base["completion_ids"] + turn["prompt_ids"]
            turn["prompt"] = base["prompt"] + "".join(base["pieces"]) + turn["prompt"]
    return row


def _continues(turns: Sequence[Turn], number: int) -> tuple[int | None, tuple[int, ...]]:
    """The latest earlier turn whose prompt and completion open this prompt, and the ids after them."""
    prompt = turns[number].prompt_ids
    for earlier in range(number - 1, -1, -1):
        opening = turns[earlier].prompt_ids + turns[earlier].completion_ids
        if len(opening) <= len(prompt) and prompt[: len(opening)] == opening:
            return earlier, prompt[len(opening) :]
    return None, prompt


def _scores(report: RewardReport, credit: GroupAdvantages | None, index: int) -> dict[str, Any]:
    return {
        "reward": report.total[index],
        "parts": {name: scores[index] for name, scores in report.parts.items()},
        "status": report.status[index],
        "advantage": credit.outcome[index] if credit else None,
        "tied": credit.tied if credit else None,
    }


def _read(read: MemoryRead) -> dict[str, Any]:
    return {
        "step": read.step,
        "query": read.query,
        "entry_ids": read.entry_ids,
        "scores": [round(x, _DIGITS) for x in read.scores],
        "guidance": read.guidance,
    }
