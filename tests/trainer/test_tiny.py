"""The embedded tiny policy: its tokenizer knows ALFWorld's words, its model is fixed by the seed."""

from __future__ import annotations

import pytest
import torch

from envs.household import HouseholdWorld
from envs.household.vocabulary import OBJECTS
from trainer.tiny import build_model, load_tiny

WORLD = HouseholdWorld(n_train=30)


def test_every_object_is_one_token_and_any_text_survives() -> None:
    _, tokenizer = load_tiny(WORLD, 0, hidden_size=16, layers=1, heads=2)
    for name in OBJECTS:
        assert len(tokenizer.encode(f"take {name}", add_special_tokens=False)) == 2, name
    odd = "go to desk 12\nKühlschrank, 冷蔵庫!"
    assert tokenizer.decode(tokenizer.encode(odd, add_special_tokens=False)).strip() == odd


def test_equal_seeds_give_equal_models_and_the_tokenizer_hangs_on_no_seed() -> None:
    first, again, other = (load_tiny(WORLD, seed, hidden_size=16, layers=1, heads=2) for seed in (0, 0, 1))
    assert first[1].get_vocab() == again[1].get_vocab() == other[1].get_vocab()
    pairs = [zip(first[0].parameters(), two[0].parameters(), strict=True) for two in (again, other)]
    assert [all(torch.equal(a, b) for a, b in pair) for pair in pairs] == [True, False]


def test_building_a_model_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    load_tiny(WORLD, 5, hidden_size=16, layers=1, heads=2)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("heads", "kv_heads", "message"), [(3, 1, "hidden_size=16"), (4, 3, "heads=4 is not divisible")]
)
def test_sizes_that_do_not_divide(heads: int, kv_heads: int, message: str) -> None:
    _, tokenizer = load_tiny(WORLD, 0, hidden_size=16, layers=1, heads=2)
    with pytest.raises(ValueError, match=message):
        build_model(
            tokenizer,
            hidden_size=16,
            layers=1,
            heads=heads,
            kv_heads=kv_heads,
            context_length=64,
            seed=0,
        )
