"""From a checked `Config` to the live objects of a run, all made in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agents.distill import Distiller
from agents.teacher import Teacher
from agents.types import Agent
from envs.base import World
from memory.errors import UserError
from rewards.base import Reward
from trainer.advantage import Estimator
from trainer.config import Config
from trainer.engine import Engine
from trainer.generate.hf import HFPolicy
from trainer.logging import RunLogger
from trainer.loss import LossConfig
from trainer.parts import BuildError, Part


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run works with. ``memory`` has the interface of `memory.bank.ExperienceBank`."""

    world: World
    agent: Agent
    memory: Any
    distiller: Distiller | None
    teacher: Teacher | None
    rewards: Mapping[str, Reward]
    estimator: Estimator
    loss: LossConfig
    engine: Engine
    policy: HFPolicy
    loggers: Sequence[RunLogger]


def build(config: Config) -> Parts:
    """Build everything that ``config`` names; a part that cannot be built: `trainer.parts.BuildError`.

    Cheap parts come first, so that their errors show before a model is loaded. A split without tasks:
    `UserError`.
    """
    world = config.env.build()
    _require_tasks(world, config.train.split, "train.split")
    _require_tasks(world, config.evaluation.split, "evaluation.split")
    agent = config.agent.build()
    embedder = _optional(config.retriever)
    memory = config.memory.build(**config.memory.accepted(embedder=embedder))
    return Parts(
        world=world,
        agent=agent,
        memory=memory,
        distiller=_optional(config.distiller),
        teacher=_optional(config.teacher),
        rewards={name: _reward(part) for name, part in config.rewards.items()},
        estimator=config.advantage.build(),
        loss=config.loss.build(),
        engine=config.engine.build(),
        loggers=[part.build() for part in config.logger.values()],
        policy=build_policy(config.policy, world, config.run.seed),
    )


def build_policy(part: Part, world: World, seed: int) -> HFPolicy:
    """The policy with its model and tokenizer.

    ``policy.model`` returns ``(model, tokenizer)``; it gets the world and the seed if it asks for
    them, as a model trained from nothing does.
    """
    # Adapters draw their first weights from the global generator.
    torch.manual_seed(seed)
    source: Part = part.options["model"]
    model, tokenizer = source.build(**source.accepted(world=world, seed=seed))
    policy: HFPolicy = part.build(model=model, tokenizer=tokenizer)
    return policy


def _reward(part: Part) -> Reward:
    reward = part.build()
    if not isinstance(reward, Reward):
        raise BuildError(
            f"{part.path}: {part.target} makes a {type(reward).__name__}, expected a subclass of "
            "rewards.base.Reward.\n  Derive it from Reward and define score(trajectory)."
        )
    return reward


def _optional(part: Part | None) -> Any:
    return None if part is None else part.build()


def _require_tasks(world: World, split: str, option: str) -> None:
    try:
        count = len(world.tasks(split))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{option}={split}: {error}") from error
    if count == 0:
        raise UserError(
            f"{option}={split}: found 0 tasks in the world {world.name!r}, expected at least 1.\n"
            f"  Choose another {option}, or check the options of env (its data folder, task kinds and sizes)."
        )
