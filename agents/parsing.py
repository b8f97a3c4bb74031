"""Read an answer out of a completion."""

from __future__ import annotations

import re
from dataclasses import dataclass

EMPTY = "none"
"""What a policy writes to decline: no query, no applicable guidance."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``text`` is None when nothing usable was written; ``fault`` says why then."""

    text: str | None
    fault: str | None = None

    @property
    def declined(self) -> bool:
        """True for the explicit empty answer."""
        return self.text is not None and self.text.lower() == EMPTY


def read_answer(completion: str, tag: str, output: str, finish_reason: str) -> Answer:
    """The answer in ``<tag>...</tag>`` (output ``tagged``) or the whole completion (``bare``).

    Cut-off, empty, missing or repeated answers are faults with a stated reason.
    """
    if finish_reason == "length":
        return Answer(None, f"{tag}: cut off at the token limit")
    if output == "bare":
        text = completion.strip()
        return Answer(text) if text else Answer(None, f"{tag}: empty")
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", completion, flags=re.DOTALL)
    if len(found) != 1:
        return Answer(None, f"{tag}: found {len(found)} <{tag}> answers, expected 1")
    text = found[0].strip()
    return Answer(text) if text else Answer(None, f"{tag}: empty")
