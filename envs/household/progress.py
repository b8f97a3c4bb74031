"""How much of a household goal holds: the goal conditions of ALFRED (Shridhar et al. 2020, section 5)."""

from __future__ import annotations

from envs.household.engine import HouseholdState


def goal_progress(state: HouseholdState) -> float:
    """Share of the goal's conditions that hold now, in [0, 1].

    Conditions of each wanted object: it is in hand or in a wanted receptacle, it has each wanted
    property, it is in a wanted receptacle. Light: the object is in hand, a lamp is used. The objects
    that meet most conditions count; 1 does not imply a win (two objects may be in two receptacles).
    """
    goal, game = state.game.goal, state.game
    if goal.lamp_type:
        lamp_used = not state.properties["istoggled"].isdisjoint(game.goal_lamps)
        return ((state.held in game.goal_objects) + lamp_used) / 2
    placed = {o for r in game.goal_receptacles for o in state.contents[r]}
    met = sorted(
        (
            (o == state.held or o in placed)
            + (o in placed)
            + sum(o in state.properties[name] for name in goal.properties)
            for o in game.goal_objects
        ),
        reverse=True,
    )
    return sum(met[: goal.count]) / (goal.count * (2 + len(goal.properties)))
