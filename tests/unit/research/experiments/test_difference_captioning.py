"""CLIP4IDC on pairs of one colour each."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from research.experiments.parts import clip4idc as training
from tests.support.published import refused, scored
from tests.unit.data.test_sets.writing import write_files

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
    content = [{"img_id": image, "sentences": sentences} for image, sentences in rows]
    write_files(folder, {f"annotations/{split}.json": content})


def _write_pairs(folder: Path) -> None:
    """Six pairs in each split; the first of a split comes in two rows, and each has one more without a description."""
    for split in ("train", "val", "test"):
        rows = []
        for number, (old, new) in enumerate(CHANGES):
            rows.append((f"{split}{number}", [f"the {old} wall is {new} now .", " . "]))
            pair = {f"{split}{number}.png": COLOURS[old], f"{split}{number}_2.png": COLOURS[new]}
            write_files(folder / "resized_images", pair)
        _write_rows(folder, split, *rows, (f"{split}0", ["Nothing else has changed."]), ("train0", []))


def test_every_sentence_is_a_query_and_every_described_pair_gets_a_caption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_pairs(tmp_path)
    found, again, other = (scored(NAME, tmp_path, ks=(1, 7), seed=seed) for seed in (0, 0, 1))
    assert set(found.values) == {"recall_at_1", "recall_at_7", "rouge_l", "cider"}
    assert set(found.scalars) == {"bleu_4"}
    # Seven sentences, two of the first pair; seven pairs, one without description; a full stop is not a sentence.
    assert found.values["recall_at_7"] == [1] * 7
    assert found.pictures["recall_at_1"] == [0, 0, 1, 2, 3, 4, 5]
    assert len(found.values["cider"]) == 6
    assert "METEOR is skipped, because it needs Java" in capsys.readouterr().err
    assert found.values == again.values != other.values


def test_missing_sentences_and_damaged_pictures_are_named(tmp_path: Path) -> None:
    for split in ("test", "val", "train"):
        _write_pairs(tmp_path)
        _write_rows(tmp_path, split, ("val0", [" . "]))
        refused(NAME, tmp_path, rf"{split}\.json: no pair has a sentence", allow_partial=True)
    _write_pairs(tmp_path)
    (tmp_path / "resized_images/train0.png").write_bytes(b"no picture")
    refused(NAME, tmp_path, r"train0\.png cannot be decoded", allow_partial=True)
