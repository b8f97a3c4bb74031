"""The base of every error that a user can mend. It lies leftmost so that all folders can raise it."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what the user gave: an option, a file, a folder.

    The message states what was found, what was expected and what to do. The command line prints it
    without a traceback and exits with code 2.
    """
