"""Random state of one process: Python, NumPy, torch and its accelerators."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class RngState:
    """States as plain values and tensors, so that ``torch.load(weights_only=True)`` reads them."""

    python: Any
    numpy: Any
    torch_cpu: torch.Tensor
    cuda: Sequence[torch.Tensor] = ()


def rng_state() -> RngState:
    """The random state of this process."""
    numpy_state: dict[str, Any] = np.random.get_state(legacy=False)
    keys = numpy_state["state"]
    return RngState(
        python=random.getstate(),
        numpy=numpy_state | {"state": {"key": keys["key"].tolist(), "pos": int(keys["pos"])}},
        torch_cpu=torch.get_rng_state(),
        cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_available() else (),
    )


def restore_rng(states: Sequence[RngState], rank: int) -> None:
    """Put this process into the state of ``rank``.

    A rank that the saved run did not have gets a state drawn from rank 0's and its own number: a run
    resumed with more processes is reproducible, but no continuation of the old streams.
    """
    if rank >= len(states):
        digest = hashlib.sha256(states[0].torch_cpu.numpy().tobytes() + rank.to_bytes(4, "big")).digest()
        seed_everything(int.from_bytes(digest[:4], "big"))
        return
    state = states[rank]
    version, internal, gauss = state.python
    random.setstate((version, tuple(internal), gauss))
    keys = np.array(state.numpy["state"]["key"], dtype=np.uint32)
    np.random.set_state(state.numpy | {"state": {"key": keys, "pos": state.numpy["state"]["pos"]}})
    torch.set_rng_state(state.torch_cpu)
    if state.cuda:
        torch.cuda.set_rng_state_all(list(state.cuda))


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch alike. ``seed``: 0 <= seed < 2**32."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
