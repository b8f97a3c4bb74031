"""Limits a completion to given choices: a token trie per set of choices, walked as tokens come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from agents.types import GenerationRequest

Encode = Callable[[str], Sequence[int]]
Key = tuple[tuple[str, ...], str, str]


class Node:
    """A position inside the choices; no children means the choice is complete."""

    __slots__ = ("_allowed", "children")

    def __init__(self) -> None:
        self.children: dict[int, Node] = {}
        self._allowed: tuple[int, ...] | None = None

    @property
    def allowed(self) -> tuple[int, ...]:
        """Token ids that may come next, ascending."""
        if self._allowed is None:
            self._allowed = tuple(sorted(self.children))
        return self._allowed


class ChoiceTries:
    """Builds tries and keeps the recent ones; siblings of a group and repeated states share them."""

    def __init__(self, encode: Encode, end_of_turn: int, capacity: int = 4096) -> None:
        self._encode = encode
        self._end_of_turn = end_of_turn
        self._capacity = capacity
        self._tries: OrderedDict[Key, Node] = OrderedDict()
        self._tokens: dict[tuple[str, str, str], tuple[int, ...]] = {}

    def get(self, request: GenerationRequest) -> Node:
        """Root of the trie for ``request``'s choices."""
        key = (request.choices, request.choices_after, request.choices_end)
        root = self._tries.get(key)
        if root is None:
            root = self._build(key)
            self._tries[key] = root
            if len(self._tries) > self._capacity:
                self._tries.popitem(last=False)
        else:
            self._tries.move_to_end(key)
        return root

    def _build(self, key: Key) -> Node:
        choices, after, end = key
        root = Node()
        for choice in choices:
            node = root
            for token in self._choice_tokens(choice, after, end):
                node = node.children.setdefault(token, Node())
        return root

    def _choice_tokens(self, choice: str, after: str, end: str) -> tuple[int, ...]:
        """Tokens of one choice as the tokenizer writes them behind ``after``."""
        key = (choice, after, end)
        tokens = self._tokens.get(key)
        if tokens is not None:
            return tokens
        before = tuple(self._encode(after)) if after else ()
        whole = tuple(self._encode(after + choice + end))
        if whole[: len(before)] != before:
            raise ValueError(
                f"choices_after {after!r} and the choice {choice!r} share a token, so the limit has no place "
                "to begin; end choices_after where a token ends (move its last space into the choices, or "
                "close it with a special token)"
            )
        tokens = whole[len(before) :] + (() if end else (self._end_of_turn,))
        if len(self._tokens) > 64 * self._capacity:
            self._tokens.clear()
        self._tokens[key] = tokens
        return tokens


class Constraint:
    """Where one completion stands: before the marker, inside the choices, or past them.

    The limit begins when the text so far ends with ``choices_after``. A token that runs past the
    marker leaves the completion free: the agent sees malformed text, as from any free policy.
    """

    def __init__(self, request: GenerationRequest, tries: ChoiceTries, piece: Callable[[int], str]) -> None:
        self._piece = piece
        self._marker = request.choices_after
        self._root = tries.get(request)
        self._node: Node | None = None if self._marker else self._root
        self._waiting = bool(self._marker)
        self._tail = ""

    @property
    def allowed(self) -> tuple[int, ...] | None:
        """Token ids that may come next; None: the whole vocabulary."""
        return self._node.allowed if self._node is not None else None

    def advance(self, token: int) -> None:
        """Take note of the token that was written."""
        if self._node is not None:
            node = self._node.children[token]
            self._node = node if node.children else None
        elif self._waiting:
            self._tail = (self._tail + self._piece(token))[-len(self._marker) :]
            if self._tail == self._marker:
                self._node, self._waiting = self._root, False
