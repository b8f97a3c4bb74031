"""`memgrpo play`: a person, or the expert, plays one task of the configured world."""

from __future__ import annotations

from collections.abc import Sequence

from envs.play import play
from memory.errors import UserError
from trainer.config_check import check_point
from trainer.config_compose import compose_values


def play_task(
    overrides: Sequence[str], config_dir: str | None, split: str, index: int, gold: bool
) -> int:
    """Play task number ``index`` of ``split``. A split or number that does not exist: `UserError`."""
    part = check_point("env", compose_values(overrides, config_dir).get("env"))
    assert part is not None  # env is no optional plug point
    world = part.build()
    try:
        play(world, split, index, gold)
    except (IndexError, ValueError) as error:
        raise UserError(str(error)) from error
    return 0
