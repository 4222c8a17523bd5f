"""Spot-the-Difference on pairs of one colour each."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.benchmarks.captioning import drawn_changes, learning
from components.benchmarks.captioning.learning import run
from components.benchmarks.encoding.context import EncoderUnderTest
from components.benchmarks.encoding.image_features import ImageFeatures
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.published import find_published
from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.evaluation.published import Plan, run_one
from tests.support.toy_context import colour_image, toy_context

RED, GREEN = (255, 0, 0), (0, 255, 0)
ROWS: list[dict[str, Any]] = [
    {"img_id": "256", "sentences": ["it is green now", "nothing has changed"]},
    {"img_id": "7", "sentences": ["it is red now"]},
    {"img_id": "256", "sentences": ["the red is gone"]},
    {"img_id": "8", "sentences": []},
]
"""Two rows of one pair; a pair that nobody describes; pairs 7 and 8 show the same."""
TABLE = {
    "it is green now": (0, 1, 0),
    "the red is gone": (-1, 0, 0),
    "it is red now": (1, 0, 0),
    "nothing has changed": (0, 0, 1),
}


def _write(folder: Path) -> None:
    (folder / "annotations").mkdir()
    (folder / "annotations/test.json").write_text(json.dumps(ROWS))
    for image, before, after in [("256", RED, GREEN), ("7", GREEN, RED), ("8", GREEN, RED)]:
        colour_image(folder / f"resized_images/{image}.png", before)
        colour_image(folder / f"resized_images/{image}_2.png", after)


def test_sentences_find_what_image_2_has_over_image_1_and_ties_are_lost(tmp_path: Path) -> None:
    _write(tmp_path)
    context = toy_context(tmp_path, TABLE, allow_partial=True, ks=(1, 2, 3))
    found = find_published("spot_the_difference").score(context).values
    # Sentences pair by pair: green, nothing (ties with all), red is gone; then red, which two pairs show.
    assert found["spot_the_difference/recall_at_1"].tolist() == [1, 0, 1, 0]
    assert found["spot_the_difference/recall_at_2"].tolist() == [1, 0, 1, 1]
    assert found["spot_the_difference/recall_at_3"].tolist() == [1, 1, 1, 1]
    assert context.notes == ["annotations/test.json: 4 found, 1,404 published"]


def test_wrong_and_missing_files(tmp_path: Path) -> None:
    benchmark = find_published("spot_the_difference")
    with pytest.raises(InputError, match=r"annotations/test.json \(1,404 rows.*resized_images"):
        benchmark.check_files(tmp_path)
    _write(tmp_path)
    with pytest.raises(InputError, match="4 found, 1,404 published"):
        benchmark.score(toy_context(tmp_path, TABLE))
    (tmp_path / "resized_images/7_2.png").unlink()
    with pytest.raises(InputError, match=r"7_2.png is missing"):
        benchmark.score(toy_context(tmp_path, TABLE, allow_partial=True))
    (tmp_path / "annotations/test.json").write_text(json.dumps([{"img_id": 256, "sentences": ["x"]}]))
    with pytest.raises(InputError, match=r"1 rows lack img_id or sentences"):
        benchmark.score(toy_context(tmp_path, TABLE))
    (tmp_path / "annotations/test.json").write_text(json.dumps([{"img_id": "256", "sentences": [1, " "]}]))
    with pytest.raises(InputError, match="has no sentences"):
        benchmark.score(toy_context(tmp_path, TABLE, allow_partial=True))


COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
CHANGES = list(permutations(COLOURS, 2))
NAME = "difference_captioning"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java, which takes seconds to start, and few epochs."""
    monkeypatch.setenv("PATH", "")
    for stage in ("RETRIEVAL", "WRITING"):
        monkeypatch.setattr(learning, stage, replace(getattr(learning, stage), epochs=2))


def _write_pairs(folder: Path) -> None:
    """Six pairs in each split; the first of a split comes in two rows, and test has one more that nobody describes."""
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    for split in ("train", "val", "test"):
        rows: list[dict[str, Any]] = []
        for number, (old, new) in enumerate(CHANGES):
            image = f"{split}{number}"
            rows.append({"img_id": image, "sentences": [f"the {old} wall is {new} now .", " . "]})
            colour_image(folder / f"resized_images/{image}.png", COLOURS[old])
            colour_image(folder / f"resized_images/{image}_2.png", COLOURS[new])
        rows.append({"img_id": f"{split}0", "sentences": ["Nothing else has changed."]})
        if split == "test":
            rows.append({"img_id": "train0", "sentences": []})
        (folder / f"annotations/{split}.json").write_text(json.dumps(rows))


def _score(folder: Path, **options: Any) -> Any:
    return find_published(NAME).score(toy_context(folder, {}, allow_partial=True, **options))


def test_every_sentence_is_a_query_and_every_described_pair_gets_a_caption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_pairs(tmp_path)
    found = _score(tmp_path, ks=(1, 7))
    assert set(found.values) == {f"{NAME}/{metric}" for metric in ("recall_at_1", "recall_at_7", "rouge_l", "cider")}
    assert set(found.scalars) == {f"{NAME}/bleu_4"}
    # Seven sentences, two of the first pair; seven pairs, one of which nobody describes; the full stop is no sentence.
    assert found.values[f"{NAME}/recall_at_7"].tolist() == [1] * 7
    assert found.pictures[f"{NAME}/recall_at_1"].tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert found.values[f"{NAME}/cider"].shape == (6,)
    told = capsys.readouterr().err
    assert "METEOR is left out, as it needs Java" in told
    assert "described by 'the red wall is green now'" in told


def test_pairs_that_nobody_describes_are_searched_too_and_get_no_caption(tmp_path: Path) -> None:
    _write_pairs(tmp_path)
    context = toy_context(tmp_path, {}, allow_partial=True)
    found = run(context, find_published(NAME).score.keywords["read"](context))  # type: ignore[attr-defined]
    assert (len(found.queries), len(found.pairs), len(found.captions)) == (7, 7, 6)
    assert found.references[:2] == [
        ["the red wall is green now", "nothing else has changed"],
        ["the red wall is blue now"],
    ]


def test_the_same_seed_gives_the_same_scores(tmp_path: Path) -> None:
    _write_pairs(tmp_path)
    one, again, other = (_score(tmp_path, seed=seed) for seed in (0, 0, 1))
    for name, values in one.values.items():
        assert np.array_equal(values, again.values[name]), name
    assert one.scalars == again.scalars
    assert any(not np.array_equal(values, other.values[name]) for name, values in one.values.items())


def test_missing_and_damaged_files_are_told(tmp_path: Path) -> None:
    benchmark = find_published(NAME)
    with pytest.raises(InputError, match=r"annotations/train\.json .*annotations/val\.json .*resized_images"):
        benchmark.check_files(tmp_path)
    _write_pairs(tmp_path)
    with pytest.raises(InputError, match="8 found, 1,404 published"):
        benchmark.score(toy_context(tmp_path, {}))
    for split, which in (("test", "test"), ("val", "validation"), ("train", "training")):
        _write_rows(tmp_path, split, [{"img_id": "val0", "sentences": [" . "]}])
        with pytest.raises(InputError, match=f"no {which} pair has a sentence"):
            _score(tmp_path)
        _write_pairs(tmp_path)
    (tmp_path / "resized_images/val3_2.png").unlink()
    with pytest.raises(InputError, match=r"val3_2\.png is missing"):
        _score(tmp_path)
    (tmp_path / "annotations/train.json").write_text('[{"img_id": "train0", "sent')
    with pytest.raises(InputError, match=r"train\.json is damaged"):
        _score(tmp_path)
    (tmp_path / "resized_images/train0.png").write_bytes(b"no picture")
    _write_rows(tmp_path, "train", [{"img_id": "train0", "sentences": ["a wall"]}])
    _write_rows(tmp_path, "val", [{"img_id": "val0", "sentences": ["a wall"]}])
    with pytest.raises(InputError, match=r"train0\.png cannot be decoded"):
        _score(tmp_path)


@pytest.mark.parametrize("image", ["../train0", "/etc/x", "a\0b", "", ".."])
def test_pictures_are_looked_for_in_their_folder_alone(tmp_path: Path, image: str) -> None:
    _write_pairs(tmp_path)
    _write_rows(tmp_path, "train", [{"img_id": image, "sentences": ["a wall"]}])
    with pytest.raises(InputError, match=r"train\.json: img_id .* is no picture's name"):
        _score(tmp_path)


def test_drawn_pairs_need_no_files(tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = partial(drawn_changes.drawn_pairs, counts={"train": 12, "val": 4, "test": 6})
    monkeypatch.setattr(drawn_changes, "drawn_pairs", few)
    name = f"{NAME}_embedded"
    under_test = EncoderUnderTest("tiny", tiny_encoder, "tiny", "tower", 16)
    plan = Plan(tmp_path / "none", tmp_path / "results", bootstrap=20, image_features=ImageFeatures(tmp_path / "cache"))
    report = run_one(under_test, find_published(name), plan).report
    assert report is not None
    assert {metric.split("/")[1] for metric in report.metrics} == {
        "recall_at_1", "recall_at_5", "recall_at_10", "bleu_4", "rouge_l", "cider",
    }  # fmt: skip
    assert report.metrics[f"{name}/recall_at_10"].value == 1
    assert report.metrics[f"{name}/recall_at_10"].queries == 18
    assert run_one(under_test, find_published(name), plan).state == "kept"


def test_an_encoder_without_images_is_refused(tmp_path: Path) -> None:
    _write_pairs(tmp_path)
    blind = EncoderUnderTest("blind", toy_context(tmp_path, {}).under_test.encoder, "blind")
    with pytest.raises(InputError, match="'blind' has no image tower"):
        find_published(NAME).score(PublishedContext(blind, tmp_path, allow_partial=True))


def _write_rows(folder: Path, split: str, rows: list[dict[str, Any]]) -> None:
    (folder / f"annotations/{split}.json").write_text(json.dumps(rows))
