"""Collectives of the local engine on one process and on two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainer.ranks import run_ranks, start_ranks
from trainer.engine import EngineError, LocalEngine


def test_one_process_needs_no_group() -> None:
    engine = LocalEngine()
    value = torch.ones(3)
    engine.sum_(value)
    engine.barrier()
    assert (engine.rank, engine.world_size) == (0, 1)
    assert value.tolist() == [1.0, 1.0, 1.0]
    assert engine.gather("a") == ["a"]
    assert engine.max(4) == 4
    engine.close()


def test_processes_without_a_launcher_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(EngineError, match=r"engine\.processes is 2, but this process was started alone"):
        LocalEngine(processes=2)


def test_rank_outside_the_world_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(EngineError, match="RANK 3, WORLD_SIZE 2"):
        LocalEngine()


def main(folder: Path) -> None:
    """What each rank of the test below runs."""
    engine = LocalEngine(timeout=60)
    rank = engine.rank
    tensors = [torch.full((2,), rank + 1.0), torch.tensor([[rank]]), torch.full((), 10.0 * rank)]
    engine.sum_(tensors)
    model = torch.nn.Linear(2, 1, bias=True)
    model.bias.requires_grad_(False)
    unused = torch.nn.Parameter(torch.zeros(1))
    if rank == 0:
        engine.backward(model(torch.ones(1, 2)).sum())
    engine.reduce_gradients([*model.parameters(), unused])
    engine.barrier()
    result = {
        "sums": [tensor.tolist() for tensor in tensors],
        "gathered": engine.gather({"rank": rank}),
        "max": engine.max(5 - rank),
        "gradient": model.weight.grad.tolist(),  # type: ignore[union-attr]
        "frozen": model.bias.grad,
        "unused": unused.grad.tolist(),  # type: ignore[union-attr]
    }
    torch.save(result, folder / f"rank{rank}.pt")
    engine.close()
    engine.close()


def test_two_processes(tmp_path: Path) -> None:
    run_ranks("from tests.trainer.test_engine import main", 2, tmp_path)
    for rank in range(2):
        assert torch.load(tmp_path / f"rank{rank}.pt") == {
            "sums": [[3.0, 3.0], [[1]], 10.0],
            "gathered": [{"rank": 0}, {"rank": 1}],
            "max": 5,
            "gradient": [[1.0, 1.0]],
            "frozen": None,
            "unused": [0.0],
        }


SILENT = """
import time
from trainer.engine import LocalEngine
engine = LocalEngine(timeout=3)
engine.barrier()
if engine.rank == 1:
    {rank_1}
engine.max(1)
"""


@pytest.mark.parametrize(
    "rank_1",
    [
        pytest.param("import os; os._exit(9)", id="dead"),
        pytest.param("time.sleep(600)", id="hanging", marks=pytest.mark.slow),
    ],
)
def test_lost_rank_ends_the_others_with_a_message(rank_1: str) -> None:
    alive, lost = start_ranks(SILENT.format(rank_1=rank_1), 2)
    output = alive.communicate()[0]
    lost.kill()
    lost.communicate()
    assert alive.returncode != 0
    assert "EngineError: rank 0 of 2: gather did not complete, another rank died" in output
