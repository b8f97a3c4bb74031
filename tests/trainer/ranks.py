"""Start the ranks of a test as torchrun would."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start_ranks(code: str, world_size: int) -> list[subprocess.Popen[str]]:
    """One Python process per rank that runs ``code`` with its output captured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **shared, "RANK": str(rank)},
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(world_size)
    ]


def run_ranks(imports: str, world_size: int, folder: Path) -> None:
    """Run ``main(folder)``, which ``imports`` imports, on every rank; fails with a failed rank's output."""
    code = f"from pathlib import Path\n{imports}\nmain(Path({str(folder)!r}))"
    processes = start_ranks(code, world_size)
    outputs = [process.communicate()[0] for process in processes]
    failed = [output for process, output in zip(processes, outputs, strict=True) if process.returncode != 0]
    assert not failed, "\n\n".join(failed)
