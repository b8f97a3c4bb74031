"""Generated households as ALFWorld game files."""

from __future__ import annotations

import os
from pathlib import Path

from envs.household.data import GAME_FILE
from envs.household.engine import HouseholdState
from envs.household.game import Game
from envs.household.pddl import write_game
from envs.household.plan import plan
from envs.household.world import generated_facts
from envs.types import Task


def export_game(task: Task, folder: Path) -> Path:
    """Write a generated ``task`` below ``folder`` in ALFWorld's arrangement and return the file.

    The official engine plays it as this one does, and `HouseholdWorld(data=folder)` lists it. The
    file is complete or absent. ValueError for a task that is a game file already.
    """
    facts = generated_facts(task)
    walkthrough = tuple(plan(HouseholdState(Game(facts))) or ())
    goal, payload = facts.goal, task.payload
    name = f"{task.kind}-{goal.object_type}-None-{goal.lamp_type or goal.receptacle_type}"
    place = folder / task.split / f"{name}-{payload['room']}{payload['household']}" / f"trial_{task.seed}"
    place.mkdir(parents=True, exist_ok=True)
    file = place / GAME_FILE
    unfinished = file.with_suffix(".part")
    unfinished.write_text(write_game(facts, walkthrough), encoding="utf-8")
    os.replace(unfinished, file)
    return file
