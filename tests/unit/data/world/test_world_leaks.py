"""No synthetic training text has an evaluation sentence, an evaluation frame or a word of the last tier."""

from __future__ import annotations

import csv
import random
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from components.captions.validation.rules.probes import evaluation_sentences
from components.core.settings import Settings
from components.core.text import normalised
from components.data.source import EvaluationTables
from components.data.sources.synthetic import SOURCE
from components.data.world.alt_text import alt_text
from components.data.world.evaluation_text import CUES, evaluation_text, negation_text
from components.data.world.fact_checks import find_leak
from components.data.world.lexicon import TIERS, load_lexicon, plural, word_pattern
from components.data.world.scenes import Scene, draw_scenes, pair_is_held_out

COMPONENTS = Path(__file__).parents[4] / "components"
COUNTS = {"train": 60, "val": 10, "test": 150}
SENTENCES = (
    "query", "paraphrase", "text", "true_caption", "false_caption", "caption", "negation", "true_difference",
    "false_difference", "sentence", "other_sentence", "truth", "half_truth", "full_truth",
)  # fmt: skip
"""Columns of evaluation tables that hold a sentence."""


@cache
def _scenes() -> dict[str, list[Scene]]:
    found: dict[str, list[Scene]] = {"train": [], "val": [], "test": []}
    for split, scene in draw_scenes(0, {"train": 3000, "val": 100, "test": 150}):
        found[split].append(scene)
    return found


@pytest.fixture(scope="module")
def tables() -> EvaluationTables:
    """The evaluation tables of a small world."""
    raw: dict[str, Any] = yaml.safe_load((COMPONENTS.parent / "params.yaml").read_text("utf-8"))
    raw["prepare"]["counts"] = COUNTS
    settings = Settings.model_validate(raw)
    return SOURCE.evaluation(settings, [pair for pair in SOURCE.pairs(settings) if pair.split == "test"])


@pytest.fixture(scope="module")
def evaluation(tables: EvaluationTables, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], frozenset[str]]:
    """The evaluation sentences as they are, and as the stage `validate` reads them."""
    folder = tmp_path_factory.mktemp("evaluation")
    texts: list[str] = []
    for name, (table, rows) in tables.items():
        table.write(folder / f"{name}.parquet", rows)
        kept = rows
        if "register" in rows.column_names:
            kept = rows.filter([kind != "alt_text" for kind in rows["register"].to_pylist()])
        for column in SENTENCES:
            texts += kept[column].to_pylist() if column in rows.column_names else []
    return texts, evaluation_sentences(folder)


def _leaks(texts: list[str], sentences: frozenset[str]) -> list[str]:
    return [text for text in texts if normalised(text) in sentences or find_leak(text)]


def _teacher(pattern: str) -> list[dict[str, str]]:
    rows = []
    for path in sorted((COMPONENTS / "captions" / "students" / "assets").glob(pattern)):
        with path.open(encoding="utf-8", newline="") as stream:
            rows += list(csv.DictReader(stream, delimiter="\t"))
    return rows


def test_alt_texts_and_teacher_sets_leak_nothing(evaluation: tuple[list[str], frozenset[str]]) -> None:
    rng = random.Random(0)
    alt_texts = [alt_text(scene, rng, 0.3) for split in ("train", "val") for scene in _scenes()[split]]
    taught = [text for row in _teacher("teacher*.tsv") for text in row.values() if text]
    assert (len(alt_texts), len(taught) > 3000) == (3100, True)
    assert _leaks(alt_texts + taught, evaluation[1]) == []
    concepts = load_lexicon().objects.items()
    rows = _teacher("teacher*.tsv")
    captions = {text for row in rows for name in ("caption", "other_caption") if (text := row.get(name))}
    assert len(captions) > 1000
    for caption in captions:
        names = [
            name for name, one in concepts if any(word_pattern(word).search(caption) for word in one.words.values())
        ]
        assert len(names) != 2 or not pair_is_held_out(*names), caption


def test_every_evaluation_sentence_and_no_planted_leak_passes(evaluation: tuple[list[str], frozenset[str]]) -> None:
    texts, sentences = evaluation
    assert len(texts) > 9 * COUNTS["test"]
    assert [text for text in texts if normalised(text) not in sentences] == []
    assert [text for text in texts if find_leak(text) is None] == [], "frames alone must know every sentence"
    answers = pq.read_table(COMPONENTS / "captions/assets/generations.parquet", columns=["answer"])["answer"]
    texts = [text for text in answers.to_pylist() if text]
    planted, sentences = evaluation
    clean = [text for text in texts if not _leaks([text], sentences)]
    assert len(clean) > 0.9 * len(texts)
    assert _leaks([*clean, *planted], sentences) == planted


def test_every_column_of_sentences_is_listed(tables: EvaluationTables) -> None:
    """A new table's sentences must be in `SENTENCES` and in the leak check; labels and names must not."""
    for name, (_, rows) in tables.items():
        for column in rows.column_names:
            many_words = max(len(str(value).split()) for value in rows[column].to_pylist()) > 4
            assert many_words == (column in SENTENCES), (name, column)


def test_frames_and_words_of_the_last_tier_are_caught() -> None:
    rng = random.Random(7)
    for scene in _scenes()["train"][:300]:
        _, denied = negation_text(scene, rng, rng.choice(CUES))
        assert find_leak(denied.upper()), denied
        text = evaluation_text(scene, rng, rng.choice(TIERS))
        assert find_leak(text.query), text.query
        assert find_leak(text.paraphrase.upper()), text.paraphrase
        assert find_leak(f'"{text.query.rstrip(".")}"'), text.query
    words = list(load_lexicon().tier_words("unseen"))
    forms = [form for word in words for form in (word, plural(word), word.upper(), word.replace(" ", "_"))]
    assert not [form for form in forms if find_leak(f"IMG_7 small {form}, red bg.jpg") != "word"]
