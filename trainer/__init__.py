"""The loops and what they need: rollout, advantages, losses, checkpoints, reports."""
