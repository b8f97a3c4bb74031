"""README.md of a run folder: the model card that goes with its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.files import write_atomic
from trainer.report_data import collect_summary

_CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [memgrpo, reinforcement-learning, grpo, agent, memory]
---
# {name}

A policy for LLM agents with memory, trained by memgrpo.

| setting | value |
|---|---|
{settings}

## Held-out success
95 % Wilson intervals in brackets. Evaluated on tasks that were not trained on.

{results}

## Use
{use}
`memgrpo eval run={folder}` plays the held-out tasks again; `report.html` shows curves, rollouts and memory;
`config.yaml` is the whole config.

## Limits
Trained on the tasks of one environment and evaluated on held-out tasks of the same kind; nothing is known
about its behaviour elsewhere.
"""
_USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "{model}"
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
```
The memory bank that the policy was trained with is `{bank}`.
"""


def write_model_card(run: str | Path, checkpoint: Path | None) -> Path:
    """Write ``README.md`` of the run folder from its files and return its path.

    ``checkpoint`` is the one that the card tells how to load (None: none was written). A folder that
    is no run: `memory.errors.UserError`.
    """
    folder = Path(run)
    settings, evaluations = collect_summary(folder)
    use = "No checkpoint was written.\n"
    if checkpoint is not None:
        place = checkpoint.relative_to(folder)
        use = _USE.format(model=place / "model", bank=place / "memory.json")
    text = _CARD.format(
        name=folder.name,
        folder=folder.name,
        settings="\n".join(f"| {name} | {value} |" for name, value in _settings(settings)),
        results=_results(evaluations),
        use=use,
    )
    target = folder / "README.md"
    write_atomic(target, text)
    return target


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    train, parts = settings["train"], ("env", "agent", "memory", "advantage")
    named = [(p, settings[p]["_target_"]) for p in parts if settings.get(p)]
    model = settings["policy"]["model"].items()
    return [
        *named,
        *((f"model {key}", value) for key, value in model if value is not None),
        ("policy updates", train["steps"]),
        ("trajectories per update", f"{train['tasks_per_step']} tasks x {train['group_size']}"),
        ("learning rate", train["learning_rate"]),
        ("seed", settings["run"]["seed"]),
    ]


def _results(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """First and last evaluation of every split and temperature."""
    if not evaluations:
        return "Not evaluated."
    by_name: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in evaluations:
        by_name.setdefault((row["split"], row["name"]), []).append(row)
    lines = ["| split | decoding | first | last |", "|---|---|---|---|"]
    for (split, name), rows in by_name.items():
        lines.append(f"| {split} | {name} | {_result(rows[0])} | {_result(rows[-1])} |")
    return "\n".join(lines)


def _result(row: Mapping[str, Any]) -> str:
    interval = f"[{row['success_low']:.1%}, {row['success_high']:.1%}]"
    return f"{row['success_rate']:.1%} {interval} of {row['played']}, {row['phase']} {row['step']}"
