"""Worlds with text in and text out."""
