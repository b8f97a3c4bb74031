import subprocess
import sys

import numpy as np
import pytest

from memory.retrieval import Embedder, EmbedderError, HashedEmbedder, HFEmbedder, VectorStore, top_k


def test_hashed_vectors_have_unit_length_and_prefer_related_text():
    embedder = HashedEmbedder(dim=256)
    texts = ["heat the potato in a microwave", "heat potatoes with the microwave", "look under a sofa"]
    texts += ["", "?!"]
    vectors = embedder.embed(texts)
    assert isinstance(embedder, Embedder)
    assert vectors.dtype == np.float32 and vectors.shape == (5, 256)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert vectors[0] @ vectors[1] > 0.4 > 0.3 > vectors[0] @ vectors[2]
    assert embedder.embed([]).shape == (0, 256)
    assert HashedEmbedder(dim=128).name != embedder.name


def test_hashed_vectors_are_equal_in_another_process():
    code = (
        "from memory.retrieval import HashedEmbedder;"
        "print(HashedEmbedder(64).embed(['put two mugs in the cabinet']).tobytes().hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {HashedEmbedder(64).embed(["put two mugs in the cabinet"]).tobytes().hex()}


def test_top_k_equals_a_full_sort_and_keeps_row_order_among_ties():
    rng = np.random.default_rng(0)
    vectors = rng.integers(-1, 2, size=(200, 4)).astype(np.float32)  # few values: many ties
    query = np.asarray([1, 2, 0, -1], dtype=np.float32)
    rows, scores = top_k(vectors, query, 17)
    expected = np.argsort(-(vectors @ query), kind="stable")[:17]
    assert rows.tolist() == expected.tolist()
    assert scores.tolist() == (vectors @ query)[expected].tolist()
    with pytest.raises(ValueError, match="k is 0"):
        top_k(vectors, query, 0)


def test_vector_store_views_survive_growth_and_are_read_only():
    store = VectorStore()
    views = []
    for i in range(100):
        store.append(np.full(3, i, dtype=np.float32))
        views.append(store.rows_ND)
    assert all(view[-1, 0] == i and len(view) == i + 1 for i, view in enumerate(views))
    with pytest.raises(ValueError, match="read-only"):
        views[0][0, 0] = 1.0


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "heat", "cool", "the", "mug", "plate"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_hf_embedder_loads_late_and_does_not_depend_on_padding(encoder_folder, pooling):
    embedder = HFEmbedder(str(encoder_folder), pooling=pooling, batch_size=2)
    assert embedder._loaded is None
    texts = ["heat the mug", "cool", "the plate the plate the plate"]
    together = embedder.embed(texts)
    alone = np.concatenate([embedder.embed([t]) for t in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    assert embedder.embed([]).shape == (0, 16)


def test_hf_embedder_errors_name_the_model_and_a_way_out(tmp_path):
    with pytest.raises(EmbedderError, match="retriever=hashed"):
        HFEmbedder(str(tmp_path)).embed(["x"])
    with pytest.raises(ValueError, match="pooling is 'max'"):
        HFEmbedder("x", pooling="max")
