"""Several processes on this machine, with the environment that torchrun would set."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import IO, Any

WORKER = (sys.executable, "-P", "-m", "launch.worker")
_POLL_SECONDS = 0.1
_SHOWN_LINES = 40


def run_processes(
    values: Mapping[str, Any], count: int, worker: Sequence[str] = WORKER, grace: float = 10.0
) -> int:
    """Run ``count`` ranks of ``worker`` with the config ``values``; 0 when all of them end well.

    Rank 0 prints; of another rank that fails by itself the last lines are shown. SIGINT and SIGTERM
    are passed on. When one rank fails the others get ``grace`` seconds to end, then are killed; the
    result is the exit code of the first failure (128 + signal for a killed rank).
    """
    with tempfile.TemporaryDirectory() as folder:
        logs = [open(os.path.join(folder, f"{rank}"), "w+b") for rank in range(count)]  # noqa: SIM115
        port = _free_port()
        ranks = [_start(worker, rank, count, port, logs[rank]) for rank in range(count)]
        handlers = {s: signal.signal(s, _forward(ranks)) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            for process in ranks:
                _hand_over(process, values)
            return _wait(ranks, logs, grace)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for log in logs:
                log.close()


def _start(
    worker: Sequence[str], rank: int, count: int, port: int, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    threads = max(1, (os.cpu_count() or 1) // count)
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
        # Ranks share the cores: a thread that spins while it waits takes them from another rank.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    return subprocess.Popen(
        worker,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=None if rank == 0 else subprocess.DEVNULL,
        stderr=None if rank == 0 else log,
        # A terminal sends Ctrl-C to the whole foreground group; ranks get it once, from here.
        start_new_session=True,
    )


def _hand_over(process: subprocess.Popen[bytes], values: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(values).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return  # This rank is dead already; _wait reports it.


def _wait(ranks: Sequence[subprocess.Popen[bytes]], logs: Sequence[IO[bytes]], grace: float) -> int:
    failed = None
    while failed is None:
        codes = [process.poll() for process in ranks]
        if all(code == 0 for code in codes):
            return 0
        failed = next((rank for rank, code in enumerate(codes) if code not in (None, 0)), None)
        time.sleep(_POLL_SECONDS if failed is None else 0)
    deadline = time.monotonic() + grace
    while any(process.poll() is None for process in ranks) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    code = ranks[failed].returncode
    if failed and ranks[0].poll() != code:
        print(f"rank {failed} of {len(ranks)} ended with code {code}:", file=sys.stderr)
        print(_last_lines(logs[failed]), file=sys.stderr)
    return code if code > 0 else 128 - code


def _last_lines(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:])


def _forward(ranks: Sequence[subprocess.Popen[bytes]]) -> Any:
    def handler(number: int, frame: FrameType | None) -> None:
        for process in ranks:
            process.send_signal(number)

    return handler


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
