"""Official ALFWorld games for tests marked ``data``."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.household.data import find_games


@pytest.fixture(scope="session")
def official_games(data_folder: Path) -> Path:
    """Folder with the published games by split, unpacked into the cache on first use."""
    return find_games(data_folder / "alfworld")
