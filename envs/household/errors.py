"""What can be wrong with a household's input."""

from __future__ import annotations

from memory.errors import UserError


class GameFileError(UserError):
    """A game file cannot be played: names the file, what was found, what was expected, what to do."""

    def __init__(self, source: str, found: str, expected: str) -> None:
        super().__init__(
            f"cannot play the game {source}: found {found}; expected {expected}. "
            "Unpack the ALFWorld data again (json_2.1.1 or later, game.tw-pddl) or remove the file."
        )


class GameDataError(UserError):
    """A folder of games cannot be used: missing, empty, or without the wanted tasks."""
