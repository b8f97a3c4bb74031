from __future__ import annotations

import json
import random
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer.checkpoint import (
    CheckpointError,
    TrainState,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from trainer.rng import restore_rng, rng_state, seed_everything
from trainer.tiny import build_model, build_tokenizer

TOKENIZER = build_tokenizer(["go to shelf 1", "take mug 2 from shelf 1"], vocab_size=300)
LOGS = {"metrics.jsonl": 12}


class Training:
    """A real model, AdamW with a schedule, and updates that draw from all three generators."""

    def __init__(self) -> None:
        seed_everything(3)
        self.model: Any = build_model(TOKENIZER, hidden_size=32, layers=2, heads=2, context_length=32, seed=0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))

    def update(self) -> float:
        length = 6 + random.randrange(3) + int(np.random.randint(3))
        ids = torch.randint(0, len(TOKENIZER), (2, length))
        loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def save(self, root: Path, step: int, phase: str = "grpo", keep: int = 2) -> Path:
        return save_checkpoint(
            root,
            TrainState(phase, step, cursor={"epoch": 1, "next": 7}, extras={"best": 0.5}),
            model=self.model,
            tokenizer=TOKENIZER,
            stateful={"optimizer": self.optimizer, "scheduler": self.scheduler},
            rng=[rng_state()],
            logs=LOGS,
            memory={"entries": [{"text": "look in the fridge", "uses": 3}]},
            keep=keep,
        )


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    straight = Training()
    for _ in range(2):
        straight.update()
    saved = straight.save(tmp_path, 2)
    expected = [straight.update() for _ in range(3)]

    resumed = Training()
    resumed.update()
    checkpoint = load_checkpoint(saved)
    checkpoint.restore_model(resumed.model)
    checkpoint.restore({"optimizer": resumed.optimizer, "scheduler": resumed.scheduler})
    restore_rng(checkpoint.rng, rank=0)

    assert [resumed.update() for _ in range(3)] == expected
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_everything_comes_back(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(Training().save(tmp_path, 2))
    assert checkpoint.state == TrainState("grpo", 2, cursor={"epoch": 1, "next": 7}, extras={"best": 0.5})
    assert checkpoint.logs == LOGS
    assert checkpoint.memory == {"entries": [{"text": "look in the fridge", "uses": 3}]}


def test_the_model_folder_loads_in_plain_transformers(tmp_path: Path) -> None:
    training = Training()
    folder = load_checkpoint(training.save(tmp_path, 1)).model_path
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)("take mug 2").input_ids])
    assert torch.equal(model(input_ids=ids).logits, training.model(input_ids=ids).logits)


def test_a_lora_adapter_is_restored(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    training = Training()
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    training.model = get_peft_model(training.model, config)
    saved = training.save(tmp_path, 1)
    adapter = {k: v.clone() for k, v in training.model.state_dict().items() if "lora" in k}
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            if "lora" in name:
                parameter.zero_()
    load_checkpoint(saved).restore_model(training.model)
    assert adapter
    for name, value in adapter.items():
        assert torch.equal(value, training.model.state_dict()[name]), name


def test_the_latest_complete_one_is_found_across_phases(tmp_path: Path) -> None:
    training = Training()
    assert latest_checkpoint(tmp_path) is None
    training.save(tmp_path, 100, phase="sft")
    latest = training.save(tmp_path, 5, phase="grpo")
    (tmp_path / ".tmp-grpo-000006").mkdir()
    (tmp_path / "grpo-000007").mkdir()  # no manifest
    assert latest_checkpoint(tmp_path) == latest


def test_only_the_last_ones_are_kept_and_leftovers_swept(tmp_path: Path) -> None:
    training = Training()
    (tmp_path / ".tmp-grpo-000000").mkdir()
    for step in range(1, 5):
        training.save(tmp_path, step, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["grpo-000003", "grpo-000004"]


def test_a_bad_checksum_is_an_error_that_names_file_sums_and_remedy(tmp_path: Path) -> None:
    training = Training()
    training.save(tmp_path, 1)
    latest = training.save(tmp_path, 2)
    weights = latest / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        latest_checkpoint(tmp_path)
    message = str(caught.value)
    assert str(weights) in message and "expected sha256" in message and "found" in message
    assert f"delete {latest} to continue from grpo-000001" in message
    shutil.rmtree(latest)
    assert latest_checkpoint(tmp_path) == tmp_path / "grpo-000001"


@pytest.mark.parametrize("damage", ["missing", "truncated manifest", "future format"])
def test_other_damage_is_an_error_too(tmp_path: Path, damage: str) -> None:
    folder = Training().save(tmp_path, 1)
    manifest = folder / "manifest.json"
    if damage == "missing":
        (folder / "optimizer.pt").unlink()
    elif damage == "truncated manifest":
        manifest.write_text(manifest.read_text()[:50])
    else:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    expected = {"missing": r"optimizer\.pt is damaged", "truncated manifest": r"manifest\.json is damaged",
                "future format": "format 99"}
    with pytest.raises(CheckpointError, match=expected[damage]):
        latest_checkpoint(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(Training().save(tmp_path, 1))
    other = build_model(TOKENIZER, hidden_size=64, layers=2, heads=2, context_length=32, seed=0)
    with pytest.raises(CheckpointError, match="does not fit the model"):
        checkpoint.restore_model(other)


def test_a_state_that_was_not_saved_is_named(tmp_path: Path) -> None:
    training = Training()
    checkpoint = load_checkpoint(training.save(tmp_path, 1))
    with pytest.raises(CheckpointError, match=r"no state of 'critic', only of optimizer, scheduler"):
        checkpoint.restore({"critic": training.optimizer})


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Writes past ``size`` bytes of a file fail in the kernel, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [2_000, 150_000], ids=["in JSON", "in tensors"])
def test_a_write_that_fails_leaves_the_previous_checkpoint_alone(tmp_path: Path, size: int) -> None:
    training = Training()
    first = training.save(tmp_path, 1)
    before = files(first)
    training.update()
    with no_file_larger_than(size), pytest.raises(CheckpointError) as caught:
        training.save(tmp_path, 2)
    assert "grpo-000002 could not be written" in str(caught.value)
    assert "Earlier checkpoints are intact" in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["grpo-000001"]
    assert files(first) == before
    assert latest_checkpoint(tmp_path) == first
    training.save(tmp_path, 2)


def test_a_new_rank_gets_its_own_reproducible_state() -> None:
    seed_everything(1)
    states = [rng_state()]
    draws = []
    for rank in (1, 2, 1):
        restore_rng(states, rank)
        draws.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
    assert draws[0] == draws[2] != draws[1]
