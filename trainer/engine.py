"""What the trainer asks of the process it runs in: collectives, backward, optimiser step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

T = TypeVar("T")


class EngineError(RuntimeError):
    """A collective did not complete: another rank died or hangs."""


class Engine(Protocol):
    """Ranks and gradients. Collectives must be called by every rank in the same order."""

    rank: int
    world_size: int

    def sum_(self, tensors: Tensor | Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over ranks."""
        ...

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in rank order, on every rank."""
        ...

    def max(self, value: int) -> int:
        """The largest value of all ranks."""
        ...

    def barrier(self) -> None:
        """Wait for every rank."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of this rank's share of the loss."""
        ...

    def reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum gradients over ranks; afterwards every trained parameter has one."""
        ...

    def step(self, optimizer: Optimizer) -> None:
        """Apply the gradients."""
        ...

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The transformers or PEFT model inside whatever the engine made of it."""
        ...

    def close(self) -> None:
        """Leave the process group. Calling it twice is allowed."""
        ...


class LocalEngine:
    """One process, or WORLD_SIZE processes over gloo with a full copy of the model each.

    RANK and WORLD_SIZE (and MASTER_ADDR, MASTER_PORT) come from the environment, as torchrun and the
    launcher set them; without WORLD_SIZE only ``processes`` = 1 is possible. A collective that takes
    longer than ``timeout`` seconds raises `EngineError`.
    """

    def __init__(self, processes: int = 1, timeout: float = 600.0) -> None:
        if processes > 1 and "WORLD_SIZE" not in os.environ:
            raise EngineError(
                f"engine.processes is {processes}, but this process was started alone: start the run with "
                "`memgrpo` or torchrun, which set RANK and WORLD_SIZE"
            )
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.timeout = timeout
        if not 0 <= self.rank < self.world_size:
            raise EngineError(
                f"RANK {self.rank}, WORLD_SIZE {self.world_size}: expected 0 <= RANK < WORLD_SIZE"
            )
        if self.world_size > 1 and not dist.is_initialized():
            self._run("start-up", lambda: dist.init_process_group("gloo", timeout=timedelta(seconds=timeout)))

    def sum_(self, tensors: Tensor | Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over ranks; one message per dtype."""
        if self.world_size == 1:
            return
        todo = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        for dtype in sorted({tensor.dtype for tensor in todo}, key=str):
            same = [tensor for tensor in todo if tensor.dtype == dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in same])
            self._run("sum", partial(dist.all_reduce, flat))
            for tensor, part in zip(same, torch.split(flat, [t.numel() for t in same]), strict=True):
                tensor.detach().copy_(part.view_as(tensor))

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in rank order; values are pickled."""
        if self.world_size == 1:
            return [value]
        values: list[T | None] = [None] * self.world_size
        self._run("gather", lambda: dist.all_gather_object(values, value))
        return values  # type: ignore[return-value]

    def max(self, value: int) -> int:
        """The largest value of all ranks."""
        return max(self.gather(value))

    def barrier(self) -> None:
        """Wait for every rank."""
        if self.world_size > 1:
            self._run("barrier", dist.barrier)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``."""
        loss.backward()  # type: ignore[no-untyped-call]

    def reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum gradients over ranks; a parameter without one gets zeros."""
        gradients = []
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        self.sum_(gradients)

    def step(self, optimizer: Optimizer) -> None:
        """Apply the gradients."""
        optimizer.step()

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The model itself: this engine does not wrap it."""
        return model

    def close(self) -> None:
        """Leave the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _run(self, what: str, collective: Callable[[], object]) -> None:
        try:
            collective()
        except (RuntimeError, dist.DistError) as error:
            raise EngineError(
                f"rank {self.rank} of {self.world_size}: {what} did not complete, another rank died "
                f"or was silent for {self.timeout:.0f} s. Look for the first error in the output of the "
                f"other ranks. ({error})"
            ) from error
