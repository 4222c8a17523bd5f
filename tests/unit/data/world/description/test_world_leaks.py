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

from components.core.settings import Settings
from components.core.text import normalised
from components.data.sources.synthetic import SOURCE
from components.data.world.alt_text import alt_text
from components.data.world.description.evaluation_text import evaluation_text
from components.data.world.description.lexicon import TIERS, load_lexicon, plural, word_pattern
from components.data.world.description.negation_text import CUES, negation_text
from components.data.world.description.scenes import Scene, draw_scenes, pair_is_held_out
from components.validation.rules.measuring.probes import evaluation_sentences
from components.validation.rules.world.checks import find_leak

ASSETS = Path(__file__).parents[5] / "components" / "students" / "assets"
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
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], frozenset[str]]:
    """The evaluation sentences of a small world, as they are and as the validate stage knows them."""
    settings = _settings()
    tests = [pair for pair in SOURCE.pairs(settings) if pair.split == "test"]
    folder = tmp_path_factory.mktemp("evaluation")
    texts: list[str] = []
    for name, (table, rows) in SOURCE.evaluation(settings, tests).items():
        table.write(folder / f"{name}.parquet", rows)
        kept = rows
        if "register" in rows.column_names:
            kept = rows.filter([kind != "alt_text" for kind in rows["register"].to_pylist()])
        for column in SENTENCES:
            texts += kept[column].to_pylist() if column in rows.column_names else []
    return texts, evaluation_sentences(folder)


def _settings() -> Settings:
    raw: dict[str, Any] = yaml.safe_load((ASSETS.parents[2] / "params.yaml").read_text("utf-8"))
    raw["prepare"]["counts"] = COUNTS
    return Settings.model_validate(raw)


def _leaks(texts: list[str], sentences: frozenset[str]) -> list[str]:
    return [text for text in texts if normalised(text) in sentences or find_leak(text)]


def _teacher() -> list[str]:
    texts = []
    for path in sorted(ASSETS.glob("teacher*.tsv")):
        with path.open(encoding="utf-8", newline="") as stream:
            texts += [text for row in csv.DictReader(stream, delimiter="\t") for text in row.values() if text]
    return texts


def test_alt_texts_of_training(evaluation: tuple[list[str], frozenset[str]]) -> None:
    rng = random.Random(0)
    texts = [alt_text(scene, rng, 0.3) for split in ("train", "val") for scene in _scenes()[split]]
    assert len(texts) == 3100
    assert _leaks(texts, evaluation[1]) == []


def test_teacher_sets(evaluation: tuple[list[str], frozenset[str]]) -> None:
    texts = _teacher()
    assert len(texts) > 3000
    assert _leaks(texts, evaluation[1]) == []


def test_teacher_set_shows_no_held_out_pair() -> None:
    with (ASSETS / "teacher.tsv").open(encoding="utf-8", newline="") as stream:
        captions = [row["caption"] for row in csv.DictReader(stream, delimiter="\t")]
    for caption in captions:
        names = [
            name
            for name, concept in load_lexicon().objects.items()
            if any(word_pattern(word).search(caption) for word in concept.words.values())
        ]
        if len(names) == 2:
            assert not pair_is_held_out(*names), caption


def test_every_evaluation_sentence_is_caught(evaluation: tuple[list[str], frozenset[str]]) -> None:
    texts, sentences = evaluation
    assert len(texts) > 9 * COUNTS["test"]
    assert [text for text in texts if normalised(text) not in sentences] == []
    assert [text for text in texts if find_leak(text) is None] == [], "frames alone must know every sentence"


def test_every_column_of_words_is_known() -> None:
    """A new table's sentences must be in `SENTENCES` and in the leak check; labels and names are none."""
    settings = _settings()
    tests = [pair for pair in SOURCE.pairs(settings) if pair.split == "test"]
    for name, (_, rows) in SOURCE.evaluation(settings, tests).items():
        for column in rows.column_names:
            many_words = max(len(str(value).split()) for value in rows[column].to_pylist()) > 4
            assert many_words == (column in SENTENCES), (name, column)


def test_frames_are_caught_with_other_facts() -> None:
    rng = random.Random(7)
    for scene in _scenes()["train"][:300]:
        denied = negation_text(scene, rng, rng.choice(CUES))
        assert find_leak(denied.negation.upper()), denied.negation
        text = evaluation_text(scene, rng, rng.choice(TIERS))
        assert find_leak(text.query), text.query
        assert find_leak(text.paraphrase.upper()), text.paraphrase
        assert find_leak(f'"{text.query.rstrip(".")}"'), text.query


def test_words_of_the_last_tier_are_caught() -> None:
    words = list(load_lexicon().tier_words("unseen"))
    forms = [form for word in words for form in (word, plural(word), word.upper(), word.replace(" ", "_"))]
    assert not [form for form in forms if find_leak(f"IMG_7 small {form}, red bg.jpg") != "word"]


def test_generations_with_planted_leaks(evaluation: tuple[list[str], frozenset[str]]) -> None:
    """Raw answers may leak; what matters is that the check lets none of the leaks pass."""
    path = ASSETS / "generations.parquet"
    if not path.exists():
        pytest.skip("no committed generations")
    texts = [text for text in pq.read_table(path, columns=["answer"])["answer"].to_pylist() if text]
    planted, sentences = evaluation
    clean = [text for text in texts if not _leaks([text], sentences)]
    assert len(clean) > 0.9 * len(texts)
    assert _leaks([*clean, *planted], sentences) == planted
