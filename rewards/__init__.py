"""Trajectory group -> RewardReport."""
