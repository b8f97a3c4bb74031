"""What holds for all tests: no network, one thread per process, and where the data lies."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

# Before any library reads them: a missing model must fail at once instead of retrying for half a minute,
# and several processes with a thread pool each run many times slower than with one thread each.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MEMGRPO_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder with ``alfworld/`` and other official data; tests that use it are marked ``data``."""
    if not DATA.is_dir():
        pytest.skip(f"no data folder at {DATA}; set MEMGRPO_DATA")
    return DATA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason."""
    no_data = pytest.mark.skip(reason=f"no data folder at {DATA}; set MEMGRPO_DATA")
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "data" in item.keywords and not DATA.is_dir():
            item.add_marker(no_data)
        if "gpu" in item.keywords and not _has_gpu():
            item.add_marker(no_gpu)


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
