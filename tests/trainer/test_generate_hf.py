"""The local policy: exact log-probs, batching that changes nothing, cached prefixes, limits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import torch

from agents.types import Generation, GenerationRequest, PromptTooLongError
from tests.trainer.generation import ARCHITECTURES, policy, requests, tiny_model, worst_gap
from trainer.generate.hf import HFPolicy, Sampling
from trainer.rollout import generate_all


def forwarded_tokens(subject: HFPolicy) -> list[int]:
    """Collects the number of tokens of every forward pass from now on."""
    counts: list[int] = []
    embeddings = subject.model.get_input_embeddings()
    embeddings.register_forward_pre_hook(lambda _, inputs: counts.append(inputs[0].numel()))
    return counts


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("temperature", [0.7, 0.0])
def test_logprobs_equal_a_plain_forward_pass(kind: str, temperature: float) -> None:
    subject = policy(kind, temperature=temperature, max_batch=5)
    asked = requests(12, siblings=2)
    got = generate_all(subject, asked)
    assert worst_gap(subject.model, asked, got, temperature) < 1e-5
    assert {g.finish_reason for g in got} == {"stop", "length"}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_continued_sessions_reuse_their_prefix_and_stay_exact(kind: str) -> None:
    subject = policy(kind)
    first = requests(6, max_new_tokens=8)
    answers = generate_all(subject, first)
    follow = subject.encode_continuation([{"role": "user", "content": "and now?"}])
    second = [
        replace(r, prompt_ids=r.prompt_ids + a.token_ids + follow, seed=r.seed + 1)
        for r, a in zip(first, answers, strict=True)
    ]
    counts = forwarded_tokens(subject)
    got = generate_all(subject, second)
    assert worst_gap(subject.model, second, got) < 1e-5
    # A completion's last token was never fed, so it comes with the continuation.
    assert counts[0] == len(second) * (1 + len(follow))


def test_branch_of_a_conversation_keeps_the_common_prefix() -> None:
    subject = policy()
    (main,) = requests(1, seed=3)
    branch = replace(main, prompt_ids=(*main.prompt_ids, 40, 41, 42))
    back = replace(main, prompt_ids=(*main.prompt_ids, 50, 51))
    generate_all(subject, [main])
    generate_all(subject, [branch])
    counts = forwarded_tokens(subject)
    got = generate_all(subject, [back])
    assert counts[0] == 2
    assert worst_gap(subject.model, [back], got) < 1e-5


def test_siblings_prefill_their_prompt_once() -> None:
    subject = policy(max_batch=8)
    asked = requests(8, siblings=8, max_new_tokens=1)
    counts = forwarded_tokens(subject)
    got = generate_all(subject, asked)
    assert counts == [len(asked[0].prompt_ids) - 1, 8]
    assert worst_gap(subject.model, asked, got) < 1e-5


def test_a_draw_hangs_on_seed_and_position_only() -> None:
    asked = requests(10)
    together = generate_all(policy(max_batch=64), asked)
    in_turns = generate_all(policy(max_batch=3), asked)
    alone = [generate_all(policy(), [request])[0] for request in asked]
    backwards = generate_all(policy(max_batch=4), asked[::-1])[::-1]
    ids = [g.token_ids for g in together]
    for others in (in_turns, alone, backwards):
        assert [g.token_ids for g in others] == ids


def test_same_requests_give_the_same_bits() -> None:
    asked = requests(20, siblings=4)
    subject = policy(max_batch=7)
    once = generate_all(subject, asked)
    subject.forget()
    again = generate_all(subject, asked)
    assert once == again == generate_all(policy(max_batch=7), asked)


async def test_a_request_that_joins_mid_flight_is_exact() -> None:
    subject = policy(max_batch=4)
    early, late = requests(3, max_new_tokens=25), requests(3, seed=9, max_new_tokens=4)

    async def after_a_while(request: GenerationRequest) -> Generation:
        await asyncio.sleep(0.01)
        return await subject.generate(request)

    got = await asyncio.gather(*map(subject.generate, early), *map(after_a_while, late))
    assert worst_gap(subject.model, [*early, *late], got) < 1e-5


def test_temperature_zero_is_greedy() -> None:
    subject = policy(temperature=0.0)
    asked = requests(4, max_new_tokens=6)
    for request, generation in zip(asked, generate_all(subject, asked), strict=True):
        ids = torch.tensor([request.prompt_ids + generation.token_ids])
        with torch.no_grad():
            best = subject.model(ids).logits[0].argmax(-1)[len(request.prompt_ids) - 1 : -1]
        assert tuple(best.tolist()) == generation.token_ids


def test_new_weights_drop_the_cache() -> None:
    subject = policy()
    asked = requests(4)
    generate_all(subject, asked)
    subject.model.load_state_dict(tiny_model("qwen3", seed=1).state_dict())
    subject.version += 1
    got = generate_all(subject, asked)
    assert worst_gap(subject.model, asked, got) < 1e-5
    assert {g.policy_version for g in got} == {1}


def test_model_is_given_back_as_it_was() -> None:
    subject = policy()
    subject.model.train()
    before = subject.model.config._attn_implementation
    generate_all(subject, requests(2))
    assert subject.model.training
    assert subject.model.config._attn_implementation == before


def test_full_context_ends_by_length_and_a_longer_prompt_is_refused() -> None:
    subject = policy(context=64)
    full = GenerationRequest(tuple(range(2, 62)), "act", max_new_tokens=50, seed=1)
    (got,) = generate_all(subject, [full])
    assert len(got.token_ids) <= 4
    long = replace(full, prompt_ids=tuple(range(2, 66)))
    with pytest.raises(PromptTooLongError, match=r"64 tokens.*holds 64"):
        generate_all(subject, [long])


@pytest.mark.parametrize("fields", [{"max_new_tokens": 0}, {"prompt_ids": ()}])
def test_empty_requests_are_refused(fields: dict[str, Any]) -> None:
    (request,) = requests(1)
    with pytest.raises(ValueError, match="expected at least one of each"):
        generate_all(policy(), [replace(request, **fields)])


def test_sessions_beyond_the_memory_bound_are_prefilled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.generate.kv.CACHE_BYTES", 1)
    subject = policy(max_batch=2)
    first = requests(6)
    answers = generate_all(subject, first)
    second = [
        replace(r, prompt_ids=(*r.prompt_ids, *a.token_ids, 30, 31))
        for r, a in zip(first, answers, strict=True)
    ]
    assert worst_gap(subject.model, second, generate_all(subject, second)) < 1e-5


def test_cache_grows_while_rows_are_decoding() -> None:
    subject = policy(context=2048)
    short, long = requests(2, max_new_tokens=10)
    long = replace(long, prompt_ids=tuple(range(2, 252)) * 3)
    got = generate_all(subject, [short, long])
    assert worst_gap(subject.model, [short, long], got) < 1e-5


@pytest.mark.parametrize("fields", [{"temperature": -1.0}, {"max_batch": 0}])
def test_sampling_options_are_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Sampling(**fields)
