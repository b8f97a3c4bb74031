"""Completions limited to choices: what is allowed where, and exact renormalised log-probs."""

from __future__ import annotations

import pytest

from agents.types import Generation, GenerationRequest
from tests.trainer.generation import ARCHITECTURES, byte_tokenizer, policy, requests, worst_gap
from trainer.generate.choices import ChoiceTries, Constraint
from trainer.generate.hf import HFPolicy
from trainer.rollout import generate_all

CHOICES = ("go to desk 1", "go to desk 10", "look", "inventory")


def limited(count: int, **fields: str) -> list[GenerationRequest]:
    return requests(count, choices=CHOICES, max_new_tokens=40, **fields)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_completion_is_a_choice_with_exact_logprobs(kind: str) -> None:
    subject = policy(kind, constrain=True)
    asked = limited(24)
    got = generate_all(subject, asked)
    assert {g.text for g in got} <= set(CHOICES)
    assert len({g.text for g in got}) > 1
    assert all(g.finish_reason == "stop" and g.token_ids[-1] == subject.end_of_turn for g in got)
    assert worst_gap(subject.model, asked, got) < 1e-5


def test_allowed_ids_are_recorded_per_token() -> None:
    subject = policy(constrain=True)
    for generation in generate_all(subject, limited(12)):
        assert generation.allowed is not None
        first = {ord(c[0]) for c in CHOICES}
        assert {ord(subject.tokenizer.decode([i])) for i in generation.allowed[0] or ()} == first
        for token, ids in zip(generation.token_ids, generation.allowed, strict=True):
            assert ids is not None
            assert token in ids
        forced = [p for p, ids in zip(generation.logprobs, generation.allowed, strict=True) if len(ids) == 1]
        assert forced
        assert set(forced) == {0.0}


def test_choices_are_ignored_unless_asked_to_constrain() -> None:
    got = generate_all(policy(), limited(4))
    assert [g.allowed for g in got] == [None] * 4


def test_forced_tokens_cost_no_forward_pass() -> None:
    subject = policy(constrain=True)
    passes: list[int] = []
    subject.model.get_input_embeddings().register_forward_pre_hook(lambda _, x: passes.append(x[0].numel()))
    (asked,) = requests(1, choices=("inventory",), max_new_tokens=40)
    (got,) = generate_all(subject, [asked])
    assert got.text == "inventory"
    assert len(passes) == 1


def spelt(subject: HFPolicy, request: GenerationRequest, text: str) -> list[tuple[int, ...] | None]:
    """What was allowed at each token while ``text`` was written."""
    tries = ChoiceTries(subject.chat.plain_ids, subject.end_of_turn)
    constraint = Constraint(request, tries, subject.chat.piece)
    seen = []
    for token in subject.chat.plain_ids(text):
        seen.append(constraint.allowed)
        constraint.advance(token)
    return [*seen, constraint.allowed]


def test_limit_begins_behind_the_marker_and_ends_with_choices_end() -> None:
    subject = policy(constrain=True)
    (request,) = requests(1, choices=CHOICES, choices_after="<action>", choices_end="</action>")
    text = "hm <action>look</action>"
    allowed = spelt(subject, request, text)
    start = text.index("look")
    assert allowed[:start] == [None] * start
    assert all(ids is not None for ids in allowed[start:-1])
    assert allowed[-1] is None


def test_a_choice_that_begins_another_stays_open() -> None:
    subject = policy(constrain=True)
    (request,) = requests(1, choices=CHOICES)
    ids = spelt(subject, request, "go to desk 1")[-1]
    assert ids is not None
    assert set(ids) == {subject.end_of_turn, *subject.chat.plain_ids("0")}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_logprobs_are_exact_when_the_limit_begins_late(kind: str) -> None:
    subject = policy(kind, constrain=True, temperature=0.9)
    # A marker of one letter is soon written by chance.
    asked = limited(16, choices_after="e", choices_end=".")
    got = generate_all(subject, asked)
    reached = [g for g in got if g.allowed]
    assert reached
    assert all(any(c + "." in g.text for c in CHOICES) for g in reached if not _cut(g))
    assert worst_gap(subject.model, asked, got, 0.9) < 1e-5


def _cut(generation: Generation) -> bool:
    return generation.finish_reason == "length"


def test_marker_that_shares_a_token_with_a_choice_is_an_error() -> None:
    tokenizer = byte_tokenizer()

    def merged(text: str) -> tuple[int, ...]:
        return (7,) if text == ": look" else tuple(tokenizer.encode(text, add_special_tokens=False))

    tries = ChoiceTries(merged, end_of_turn=1)
    (request,) = requests(1, choices=("look",), choices_after=": ")
    with pytest.raises(ValueError, match="share a token"):
        tries.get(request)
