"""One rank of a run on several processes: reads its config from stdin and dies with its launcher."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TextIO

from launch.cli import add_working_folder
from memory.errors import UserError
from trainer.config_check import check_config


def main() -> int:
    """Exit codes as those of the command line."""
    from launch.train import work

    add_working_folder()
    values = json.loads(sys.stdin.readline())
    threading.Thread(target=_follow, args=(sys.stdin,), daemon=True).start()
    try:
        return work(check_config(values))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _follow(stdin: TextIO) -> None:
    # The launcher keeps the pipe open as long as it lives. Killed with SIGKILL it can stop nobody, and
    # ranks that live on would hold the run folder.
    stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
