import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.bank import BankStateError, ExperienceBank
from memory.no_memory import NoMemory
from memory.retrieval import HashedEmbedder
from memory.types import NewEntry

EMBEDDER = HashedEmbedder(dim=64)
DISTINCT = [
    "heat the potato in the microwave before serving",
    "open the fridge to cool a tomato",
    "wash dirty plates in the sinkbasin",
    "examine the book under the desklamp",
    "search every drawer for keys first",
    "two pillows go onto the sofa",
]


def new(text, kind="heat"):
    return NewEntry(text=text, source_observation=f"seen: {text}", task_kind=kind, provenance=("t1",))


def filled(texts=DISTINCT, **options):
    bank = ExperienceBank(EMBEDDER, **options)
    bank.insert([new(t) for t in texts], step=1)
    return bank


def test_insert_refuses_what_repeats_the_bank_or_the_same_batch():
    bank = ExperienceBank(EMBEDDER)
    first = bank.insert([new(DISTINCT[0]), new(DISTINCT[0].upper()), new(DISTINCT[1]), new("  ")], step=3)
    assert first.inserted == ("m000001", "m000002")
    assert first.duplicates == ("m000001",)
    assert first.empty == 1
    second = bank.insert([new(DISTINCT[1] + ".")], step=4)
    assert second.inserted == () and second.duplicates == ("m000002",)
    assert [e.created_step for e in bank.entries] == [3, 3]
    assert bank.entries[0].source_observation == f"seen: {DISTINCT[0]}"
    assert first.metrics()["duplicates"] == 1.0


def test_threshold_separates_near_copies_from_new_experience():
    changed = DISTINCT[0] + " now"
    cosine = float(EMBEDDER.embed([DISTINCT[0]])[0] @ EMBEDDER.embed([changed])[0])
    below = ExperienceBank(EMBEDDER, dedup_threshold=cosine + 0.01)
    above = ExperienceBank(EMBEDDER, dedup_threshold=cosine - 0.01)
    for bank in (below, above):
        bank.insert([new(DISTINCT[0]), new(changed)], step=1)
    assert (len(below), len(above)) == (2, 1)


def test_retrieve_is_best_first_and_matches_brute_force():
    bank = filled()
    query = "where do I heat a potato or wash plates"
    found = bank.retrieve(query, k=3)
    cosines = EMBEDDER.embed(DISTINCT) @ EMBEDDER.embed([query])[0]
    best = np.argsort(-cosines, kind="stable")[:3]
    assert [r.entry.text for r in found] == [DISTINCT[i] for i in best]
    assert [r.score for r in found] == pytest.approx(cosines[best].tolist())
    assert len(bank.retrieve(query, k=50)) == len(DISTINCT)
    assert ExperienceBank(EMBEDDER).retrieve(query) == ()


def test_retrieval_drops_near_copies_and_fills_up_with_the_next_best():
    near = [DISTINCT[0], DISTINCT[0] + " now", DISTINCT[0] + " quickly now"]
    loose = filled([*near, DISTINCT[1], DISTINCT[2]], dedup_threshold=0.999)
    assert len(loose) == 5
    strict = ExperienceBank(EMBEDDER, dedup_threshold=0.8)
    strict.load_state_dict(loose.state_dict())
    texts = [r.entry.text for r in strict.retrieve(DISTINCT[0], k=3)]
    assert texts[0] == DISTINCT[0]
    assert len(texts) == 3 and not set(texts) & set(near[1:])


def test_utility_counts_a_use_per_retrieval_and_a_success_per_won_trajectory():
    bank = filled(DISTINCT[:3])
    a, b, c = (e.entry_id for e in bank.entries)
    bank.record([(a, b), (a,)], success=True)
    bank.record([(a,)], success=False)
    assert bank.record([("m999999", c)], success=False).stale_reads == 1
    counts = {e.entry_id: (e.uses, e.successes) for e in bank.entries}
    assert counts == {a: (3, 1), b: (1, 1), c: (1, 0)}
    assert bank.entries[0].utility == pytest.approx(2 / 5)
    assert bank.entries[1].utility == pytest.approx(2 / 3)
    assert bank.stats()["uses_mean"] == pytest.approx(5 / 3)


def test_prune_drops_only_used_entries_of_low_utility_at_its_interval():
    bank = filled(DISTINCT[:3], prune_every=20, prune_below=0.3, prune_min_uses=3)
    a, b, _ = (e.entry_id for e in bank.entries)
    bank.record([(a,), (a,), (a,)], success=False)  # utility 1/5
    bank.record([(b,), (b,)], success=False)  # 1/4, but used twice only
    assert bank.prune(step=0).pruned == ()
    assert bank.prune(step=19).pruned == ()
    assert bank.prune(step=20).pruned == (a,)
    assert a not in [r.entry.entry_id for r in bank.retrieve(DISTINCT[0], k=5)]
    assert bank.retrieve(DISTINCT[1], k=1)[0].entry.entry_id == b


def test_capacity_evicts_lowest_utility_then_oldest():
    bank = filled(DISTINCT[:3], capacity=3)
    bank.record([("m000001",)], success=True)
    bank.record([("m000003",)], success=False)
    assert bank.insert([new(DISTINCT[3])], step=2).evicted == ("m000003",)
    assert bank.insert([new(DISTINCT[4])], step=3).evicted == ("m000002",)
    assert [e.entry_id for e in bank.entries] == ["m000001", "m000004", "m000005"]


def test_snapshot_does_not_see_later_writes():
    bank = filled(DISTINCT[:3])
    view = bank.snapshot()
    before = view.retrieve(DISTINCT[3], k=3)
    bank.insert([new(t) for t in DISTINCT[3:]], step=2)
    bank.record([("m000001",)] * 5, success=False)
    bank.prune(step=20)
    assert view.retrieve(DISTINCT[3], k=3) == before
    assert len(view) == 3 and len(bank) == 5
    assert not hasattr(view, "insert")
    assert bank.retrieve(DISTINCT[3], k=1)[0].entry.text == DISTINCT[3]


def test_a_bank_of_another_embedder_format_or_size_is_refused_and_nothing_changes():
    state = filled().state_dict()
    target = ExperienceBank(HashedEmbedder(dim=32))
    with pytest.raises(BankStateError, match=r"'hashed-v1-64'.*'hashed-v1-32'"):
        target.load_state_dict(state)
    bank = filled(DISTINCT[:1])
    with pytest.raises(BankStateError, match="format 99"):
        bank.load_state_dict({**state, "format": 99})
    with pytest.raises(BankStateError, match="damaged"):
        bank.load_state_dict({**state, "entries": state["entries"][:2]})
    assert [e.text for e in bank.entries] == DISTINCT[:1]


@pytest.mark.parametrize(
    ("option", "value"),
    [("dedup_threshold", 0.0), ("dedup_threshold", 1.2), ("capacity", 0), ("prune_every", 0)],
)
def test_bad_options_name_the_value_and_what_was_expected(option, value):
    with pytest.raises(ValueError, match=rf"memory\.{option} is {value}; expected"):
        ExperienceBank(EMBEDDER, **{option: value})


def test_no_memory_finds_nothing_and_refuses_a_saved_bank():
    memory = NoMemory()
    assert memory.snapshot().retrieve("anything") == ()
    memory.load_state_dict(memory.state_dict())
    with pytest.raises(BankStateError, match="6 entries"):
        memory.load_state_dict(filled().state_dict())
    with pytest.raises(TypeError, match="experience_bank"):
        memory.insert([new("x")], step=0)


WORDS = st.sampled_from(["open", "close", "heat", "cool", "mug", "plate", "lamp", "desk", "first", "then"])
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(TEXTS, max_size=5)),
        st.tuples(st.just("record"), st.lists(st.integers(1, 12), max_size=4), st.booleans()),
        st.tuples(st.just("prune"), st.integers(1, 6)),
    ),
    max_size=12,
)


def play(bank, operations):
    for step, (name, *values) in enumerate(operations):
        if name == "insert":
            bank.insert([new(t) for t in values[0]], step=step)
        elif name == "record":
            bank.record([[f"m{i:06d}" for i in values[0]]], success=values[1])
        else:
            bank.prune(step=values[0])


@settings(max_examples=60, deadline=None)
@given(OPERATIONS, OPERATIONS)
def test_bank_invariants_and_exact_restore(before, after):
    bank = ExperienceBank(EMBEDDER, capacity=6, prune_every=2)
    play(bank, before)
    vectors = EMBEDDER.embed([e.text for e in bank.entries])
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))
    assert len(bank) <= 6
    assert len({e.entry_id for e in bank.entries}) == len(bank)
    assert not (cosines >= 0.85).any()
    assert all(e.successes <= e.uses and 0 < e.utility < 1 for e in bank.entries)

    restored = ExperienceBank(EMBEDDER, capacity=6, prune_every=2)
    restored.load_state_dict(json.loads(json.dumps(bank.state_dict())))
    assert restored.entries == bank.entries
    play(bank, after)
    play(restored, after)
    assert json.dumps(restored.state_dict()) == json.dumps(bank.state_dict())
    assert restored.retrieve("open the drawer", k=3) == bank.retrieve("open the drawer", k=3)
