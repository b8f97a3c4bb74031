"""Embedders and dense retrieval: texts to unit vectors, nearest vectors by cosine."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from memory.errors import UserError

FloatArray = npt.NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Maps texts to vectors; the `retriever` config group builds one.

    ``name`` identifies the vector space: a bank refuses vectors of another name.
    """

    name: str

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of unit length, float32, shape (N, D)."""
        ...


class EmbedderError(UserError):
    """An embedding model cannot be loaded, or gives something that is no vector."""


def top_k(vectors_ND: FloatArray, query_D: FloatArray, k: int) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """Rows nearest to a query by cosine, best first; equal scores keep row order.

    Returns row indices and scores, both of length min(k, N). Rows and query must have unit length.
    """
    if k < 1:
        raise ValueError(f"k is {k}; expected at least 1")
    scores_N = vectors_ND @ query_D
    if len(scores_N) > k:
        # Partition alone may pick any of several equal scores at the border; take all of them,
        # so that the stable sort decides.
        border = np.partition(scores_N, len(scores_N) - k)[len(scores_N) - k]
        rows = np.flatnonzero(scores_N >= border)
    else:
        rows = np.arange(len(scores_N))
    order = np.argsort(-scores_N[rows], kind="stable")[:k]
    best = rows[order]
    return best, scores_N[best]


class VectorStore:
    """Rows that grow by doubling. Written rows never change, so views of them stay valid."""

    def __init__(self, rows_ND: FloatArray | None = None) -> None:
        self._buffer_CD = rows_ND if rows_ND is not None else np.zeros((0, 0), dtype=np.float32)
        self._count = len(self._buffer_CD)

    @property
    def rows_ND(self) -> FloatArray:
        view = self._buffer_CD[: self._count]
        view.flags.writeable = False
        return view

    def append(self, vector_D: FloatArray) -> None:
        if self._count == len(self._buffer_CD):
            grown_CD = np.zeros((max(16, 2 * self._count), len(vector_D)), dtype=np.float32)
            if self._count:
                grown_CD[: self._count] = self._buffer_CD
            self._buffer_CD = grown_CD
        self._buffer_CD[self._count] = vector_D
        self._count += 1


class HashedEmbedder:
    """Signed feature hashing of words, word pairs and character 3- and 4-grams (Weinberger et al. 2009).

    Needs no download and gives the same vectors in every process and on every machine. Each word
    carries equal weight whatever its length; repeated words count 1 + ln(count).
    """

    def __init__(self, dim: int = 512) -> None:
        if dim < 16:
            raise ValueError(f"HashedEmbedder dim is {dim}; expected at least 16, usually 256 to 4096")
        self.dim = dim
        self.name = f"hashed-v1-{dim}"

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors, shape (N, dim). A text without letters or digits gets one fixed vector."""
        vectors_ND = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors_ND[row] = self._embed_one(text)
        return vectors_ND

    def _embed_one(self, text: str) -> FloatArray:
        words = _WORD.findall(text.lower()) or ["\x00empty"]
        features = Counter(words)
        pairs = Counter(f"{left} {right}" for left, right in pairwise(words))
        indices: list[int] = []
        weights: list[float] = []
        for word, count in features.items():
            damped = 1.0 + math.log(count)
            for index, weight in _word_features(word, self.dim):
                indices.append(index)
                weights.append(weight * damped)
        for pair, count in pairs.items():
            index, sign = _hash(pair, self.dim)
            indices.append(index)
            weights.append(_PAIR_WEIGHT * sign * (1.0 + math.log(count)))
        vector_D = np.bincount(indices, weights=weights, minlength=self.dim)
        norm = float(np.linalg.norm(vector_D))
        if norm == 0.0:  # opposite signs met in every slot
            vector_D[_hash(text, self.dim)[0]] = norm = 1.0
        return np.asarray(vector_D / norm, dtype=np.float32)


_WORD = re.compile(r"\w+")
_PAIR_WEIGHT = 0.5


@lru_cache(maxsize=65536)
def _hash(feature: str, dim: int) -> tuple[int, float]:
    digest = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "little")
    return (digest >> 1) % dim, 1.0 if digest & 1 else -1.0


@lru_cache(maxsize=65536)
def _word_features(word: str, dim: int) -> tuple[tuple[int, float], ...]:
    """The word itself with half of a unit's energy, its character n-grams with the other half."""
    padded = f"<{word}>"
    grams = [padded[i : i + n] for n in (3, 4) for i in range(len(padded) - n + 1)]
    whole_index, whole_sign = _hash(f"w:{word}", dim)
    if not grams:
        return ((whole_index, whole_sign),)
    gram_weight = math.sqrt(0.5 / len(grams))
    found = [(whole_index, whole_sign * math.sqrt(0.5))]
    for gram in grams:
        index, sign = _hash(f"c:{gram}", dim)
        found.append((index, sign * gram_weight))
    return tuple(found)


class HFEmbedder:
    """A transformer encoder from a hub id or a local folder, loaded at first use.

    The defaults are BGE-M3's dense vectors: the normalised state of the first token (Chen et al.
    2024, section 3.2). ``pooling`` is ``cls`` or ``mean``; texts are cut at ``max_length`` tokens.
    """

    def __init__(
        self,
        model: str = "BAAI/bge-m3",
        *,
        revision: str | None = None,
        pooling: str = "cls",
        max_length: int = 512,
        batch_size: int = 32,
        device: str = "cpu",
    ) -> None:
        if pooling not in ("cls", "mean"):
            raise ValueError(f"HFEmbedder pooling is {pooling!r}; expected 'cls' or 'mean'")
        self.model = model
        self.revision = revision
        self.pooling = pooling
        self.max_length = max_length
        self.batch_size = batch_size
        self.device = device
        self.name = f"hf:{model}@{revision or 'main'}:{pooling}"
        self._loaded: tuple[Any, Any] | None = None

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Unit vectors, shape (N, hidden size). EmbedderError when the model cannot be loaded."""
        import torch

        tokenizer, encoder = self._load()
        pooled: list[FloatArray] = []
        for start in range(0, len(texts), self.batch_size):
            batch = tokenizer(
                list(texts[start : start + self.batch_size]),
                padding=True,
                truncation=True,
                max_length=self.max_length,
                return_tensors="pt",
            ).to(self.device)
            with torch.inference_mode():
                hidden_BTD = encoder(**batch).last_hidden_state.float()
            if self.pooling == "cls":
                pooled_BD = hidden_BTD[:, 0]
            else:
                mask_BT1 = batch["attention_mask"].unsqueeze(-1).to(hidden_BTD.dtype)
                pooled_BD = (hidden_BTD * mask_BT1).sum(1) / mask_BT1.sum(1)
            unit_BD = torch.nn.functional.normalize(pooled_BD, dim=-1)
            pooled.append(unit_BD.cpu().numpy().astype(np.float32))
        if not pooled:
            return np.zeros((0, int(encoder.config.hidden_size)), dtype=np.float32)
        return np.concatenate(pooled)

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            from transformers import AutoModel, AutoTokenizer

            try:
                tokenizer = AutoTokenizer.from_pretrained(self.model, revision=self.revision)
                encoder = AutoModel.from_pretrained(self.model, revision=self.revision)
            except (OSError, ValueError) as error:
                raise EmbedderError(
                    f"retriever.model is {self.model!r}: no embedding model could be loaded from it "
                    f"({type(error).__name__}: {str(error).splitlines()[0]}). Expected a hub id that is "
                    "reachable or cached, or a folder with config.json, weights and a tokenizer. "
                    "To run without a download choose retriever=hashed."
                ) from error
            self._loaded = (tokenizer, encoder.to(self.device).eval())
        return self._loaded
