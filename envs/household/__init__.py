"""A fast ALFWorld: plays the official game files and generates new households."""

from envs.household.errors import GameDataError, GameFileError
from envs.household.expert import ExpertError, HouseholdExpert
from envs.household.world import HouseholdEnv, HouseholdWorld

__all__ = [
    "ExpertError",
    "GameDataError",
    "GameFileError",
    "HouseholdEnv",
    "HouseholdExpert",
    "HouseholdWorld",
]
