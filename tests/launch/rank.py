"""A rank for the tests of the launcher: reports what it got, then ends as its config says."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(9))
values = json.loads(sys.stdin.readline())
rank = os.environ["RANK"]
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
seen = {name: os.environ[name] for name in NAMES}
folder = Path(values["folder"])
(folder / f"{rank}.tmp").write_text(json.dumps({**seen, "pid": os.getpid()}))
(folder / f"{rank}.tmp").rename(folder / f"{rank}.json")
print(f"rank {rank} speaks", flush=True)

if values["mode"] == "follow":
    from launch.worker import _follow

    _follow(sys.stdin)
if values["mode"] == "fail" and rank == "1":
    print("rank 1 has a reason", file=sys.stderr)
    sys.exit(3)
if values["mode"] in ("fail", "wait"):
    while True:
        time.sleep(0.01)
