"""Inputs of the checks of texts: a tokenizer, a sentence model, evaluation texts, a world's facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from components.captions.validation.rules.checks.similarity import SentenceVectors
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables import records
from components.core.tables.folders import TEST_SET, WRITTEN
from components.core.text import normalised
from components.core.text.languages import ENGLISH, detected, language_of
from components.data.leaks.report import FOLDER, TestSetKeys
from components.data.world import fact_checks
from components.encoders.adapter.tokens import token_lengths

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
