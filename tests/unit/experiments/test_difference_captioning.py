"""CLIP4IDC on pairs of one colour each, and pairs of synthetic scenes, which differ in one fact."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.benchmarks.published import find_published
from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.benchmarks.scoring.encoding.published_context import ImageFeatures
from components.core.system.errors import InputError
from components.data.world.description.scenes import Scene, Thing, draw_scenes
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import Preparation
from components.evaluation.published import Plan, run_one
from components.experiments.parts import clip4idc_training as training
from components.experiments.parts import synthetic_changes
from components.experiments.parts.synthetic_changes import FRAMES, KINDS_OF, change_of, synthetic_pairs
from tests.support.toy_context import colour_image, toy_context

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
CHANGES = list(permutations(COLOURS, 2))
NAME = "difference_captioning"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java, which takes seconds to start, and few epochs."""
    monkeypatch.setenv("PATH", "")
    for stage in ("RETRIEVAL", "WRITING"):
        monkeypatch.setattr(training, stage, replace(getattr(training, stage), epochs=2))


def _write_rows(folder: Path, split: str, *rows: tuple[str, list[str]]) -> None:
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    content = [{"img_id": image, "sentences": sentences} for image, sentences in rows]
    (folder / f"annotations/{split}.json").write_text(json.dumps(content))


def _write_pairs(folder: Path) -> None:
    """Six pairs in each split; the first of a split comes in two rows, and each has one more without a description."""
    for split in ("train", "val", "test"):
        rows = []
        for number, (old, new) in enumerate(CHANGES):
            rows.append((f"{split}{number}", [f"the {old} wall is {new} now .", " . "]))
            colour_image(folder / f"resized_images/{split}{number}.png", COLOURS[old])
            colour_image(folder / f"resized_images/{split}{number}_2.png", COLOURS[new])
        _write_rows(folder, split, *rows, (f"{split}0", ["Nothing else has changed."]), ("train0", []))


def _score(folder: Path, **options: Any) -> Any:
    return find_published(NAME).score(toy_context(folder, {}, allow_partial=True, **options))


def test_every_sentence_is_a_query_and_every_described_pair_gets_a_caption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_pairs(tmp_path)
    found = _score(tmp_path, ks=(1, 7))
    assert set(found.values) == {f"{NAME}/{metric}" for metric in ("recall_at_1", "recall_at_7", "rouge_l", "cider")}
    assert set(found.scalars) == {f"{NAME}/bleu_4"}
    # Seven sentences, two of the first pair; seven pairs, one without description; a full stop is not a sentence.
    assert found.values[f"{NAME}/recall_at_7"].tolist() == [1] * 7
    assert found.pictures[f"{NAME}/recall_at_1"].tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert found.values[f"{NAME}/cider"].shape == (6,)
    output = capsys.readouterr().err
    assert "METEOR is skipped, because it needs Java" in output
    assert "reference 'the red wall is green now'" in output


def test_the_same_seed_gives_the_same_scores(tmp_path: Path) -> None:
    _write_pairs(tmp_path)
    one, again, other = (_score(tmp_path, seed=seed) for seed in (0, 0, 1))
    for name, values in one.values.items():
        assert np.array_equal(values, again.values[name]), name
    assert one.scalars == again.scalars
    assert any(not np.array_equal(values, other.values[name]) for name, values in one.values.items())


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    for split, which in (("test", "test"), ("val", "validation"), ("train", "training")):
        _write_pairs(tmp_path)
        _write_rows(tmp_path, split, ("val0", [" . "]))
        with pytest.raises(InputError, match=f"no {which} pair has a sentence"):
            _score(tmp_path)
    for image in ("../train0", "/etc/x", "a\0b", "", ".."):
        _write_rows(tmp_path, "train", (image, ["a wall"]))
        with pytest.raises(InputError, match=r"train\.json: img_id .* is not the name of a picture"):
            _score(tmp_path)
    _write_rows(tmp_path, "train", ("train0", ["a wall"]))
    (tmp_path / "resized_images/val3_2.png").unlink()
    with pytest.raises(InputError, match=r"val3_2\.png is missing"):
        _score(tmp_path)
    _write_rows(tmp_path, "val", ("val0", ["a wall"]))
    (tmp_path / "resized_images/train0.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"train0\.png cannot be decoded"):
        _score(tmp_path)


def test_drawn_pairs_need_no_files(tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = partial(synthetic_changes.synthetic_pairs, counts={"train": 12, "val": 4, "test": 6})
    monkeypatch.setattr(synthetic_changes, "synthetic_pairs", few)
    name = f"{NAME}_embedded"
    under_test = EncoderUnderTest("tiny", tiny_encoder, "tiny", "tower", Preparation(size=16))
    plan = Plan(tmp_path / "none", tmp_path / "results", bootstrap=20, image_features=ImageFeatures(tmp_path / "cache"))
    report = run_one(under_test, find_published(name), plan).report
    assert report is not None
    assert {metric.split("/")[1] for metric in report.metrics} == {
        "recall_at_1", "recall_at_5", "recall_at_10", "bleu_4", "rouge_l", "cider",
    }  # fmt: skip
    assert report.metrics[f"{name}/recall_at_10"].value == 1
    assert report.metrics[f"{name}/recall_at_10"].queries == 18
    assert run_one(under_test, find_published(name), plan).state == "kept"


DOG, CAT = Thing("dog", "small"), Thing("cat", "large")
SCENES = {
    "pair": Scene("pair", "red", DOG, CAT, "left"),
    "single": Scene("single", "blue", DOG, position="center"),
    "group": Scene("group", "green", DOG, count="two"),
}
FACTS = {
    "background": {"colour"}, "object": {"first"}, "size": {"first"}, "position": {"position"},
    "relation": {"relation"}, "count": {"count"},
}  # fmt: skip


def test_exactly_one_fact_changes_and_every_kind_comes() -> None:
    rng, seen = random.Random(0), Counter[str]()
    for _, scene in draw_scenes(3, {"train": 300, "val": 1, "test": 1}):
        change = change_of(scene, rng)
        before, after = asdict(change.before), asdict(change.after)
        assert {name for name in before if before[name] != after[name]} == FACTS[change.kind]
        assert change.before.canonical() == scene.canonical()
        if change.kind in ("object", "size"):
            same = "size" if change.kind == "object" else "name"
            assert getattr(change.before.first, same) == getattr(change.after.first, same)
        seen[change.kind] += 1
    assert set(seen) == set(FRAMES) == {kind for kinds in KINDS_OF.values() for kind in kinds}
    assert min(seen.values()) > 3


@pytest.mark.parametrize(
    ("scene", "kind", "expected"),
    [
        ("single", "size", {"the dog became large", "the dog is large now and was small before",
                            "the small dog has turned into a large one"}),
        ("group", "count", {"there are three dogs now instead of two", "there are four dogs now instead of two"}),
        ("pair", "relation", {"the dog moved from left of the cat to right of it",
                              "the cat moved from right of the dog to left of it"}),
    ],
)  # fmt: skip
def test_sentences_state_the_change(scene: str, kind: str, expected: set[str]) -> None:
    changes = [change_of(SCENES[scene], random.Random(seed)) for seed in range(60)]
    found = {sentence for change in changes if change.kind == kind for sentence in change.sentences}
    assert found == expected if kind == "size" else found >= expected


def test_the_same_seed_draws_the_same_pairs_and_pictures_differ() -> None:
    counts = {"train": 6, "val": 2, "test": 4}
    one, repeated, other = (synthetic_pairs(seed, counts) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert [len(split) for split in (one.train, one.val, one.test)] == [6, 2, 4]
    drawn = [
        [(pair.sentences, pair.before.stamp, pair.after.stamp) for pair in found.train] for found in (one, repeated)
    ]
    assert drawn[0] == drawn[1]
    assert all(before != after for _, before, after in drawn[0])
    with one.train[0].before.open() as image:
        assert np.asarray(image).shape == (64, 64, 3)
    assert [pair.sentences for pair in one.test] != [pair.sentences for pair in other.test]
