"""Policies: where completions come from."""
