"""CC-Neg by both protocols on rows whose answers are known."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks.published import find_published
from components.benchmarks.published.cc_neg import convert
from components.benchmarks.scoring.protocols.choices import composite_score
from components.core.system.errors import InputError
from components.test_sets.files import released_test_rows
from components.test_sets.readers import cc_neg
from tests.support.toy_context import colour_image, toy_context, wide_image

TABLE = {"red": (1, 0, 0), "no red": (0, 1, 0), "rosy": (1, 0, 0), "crimson": (0.9, 0.1, 0), "leaf": (0, 1, 0)}
AUTHORS = "/workspace/datasets/cc3m/ccneg_images/cc3m_subset_images_extracted_final"


def _annotation(caption: str, negated: str) -> dict[str, Any]:
    return {"json": {"caption": caption, "url": "x"}, "sop_data": {"negative-prompt": negated, "subject": ["red"]}}


def test_con_clip_by_hand_from_the_authors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable row outside of the tested ones, a right row with a comma, a tie, a wrong one."""
    texts = [("red", "green"), ("red", "no, red"), ("red", "rosy"), ("leaf", "red")]
    paths = [f"{AUTHORS}/{name}.jpg" for name in ("gone", "a", "a", "a")]
    annotations = [_annotation(*pair) for pair in texts]
    torch.save({"image_paths": paths, "annotations": annotations, "num_ops": {1: [0]}}, tmp_path / "published.pt")
    assert convert(tmp_path / "published.pt", tmp_path / cc_neg.TABLE) == 4
    colour_image(tmp_path / cc_neg.IMAGES / "a.jpg", (255, 0, 0))
    monkeypatch.setattr(cc_neg, "TESTED", 3)
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    scores = find_published("cc_neg").score(context)
    assert scores.values["cc_neg/accuracy"].tolist() == [1, 1, 0]
    assert context.notes == ["cc_neg.parquet: 4 found, 228,246 published"]
    assert "no red" in context.under_test.encoder.asked  # type: ignore[attr-defined]


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_pickles_that_could_run_code_and_other_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"image_paths": [], "annotations": [_Bomb()]}, tmp_path / "bomb.pt")
    torch.save({"image_paths": ["a", "b"], "annotations": [_annotation("a", "b")]}, tmp_path / "ragged.pt")
    for name, message in (
        ("bomb", "holds more than plain data"),
        ("ragged", "does not have the layout"),
        ("gone", r"gone.pt is missing or damaged"),
    ):
        with pytest.raises(InputError, match=message):
            convert(tmp_path / f"{name}.pt", tmp_path / "out.parquet")
    assert not (tmp_path / "ran").exists()
    pq.write_table(pa.table({"image_path": ["a"], "caption": ["b"]}), tmp_path / cc_neg.TABLE)
    with pytest.raises(InputError, match=r"lacks the column 'negated'.*published.cc_neg"):
        find_published("cc_neg").score(toy_context(tmp_path, TABLE))
    (tmp_path / cc_neg.TABLE).write_bytes(b"PK")
    with pytest.raises(InputError, match="is not a Parquet file"):
        find_published("cc_neg").score(toy_context(tmp_path, TABLE))


def _write_csv(folder: Path, rows: list[tuple[str, ...]]) -> None:
    with (folder / cc_neg.CSV).open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("image_number", "caption", "negation", "paraphrased"), *rows])


def test_semclip_by_hand(tmp_path: Path) -> None:
    """Of 29 rows two are tested, those that the shuffle puts last; they have a red and a green picture."""
    first, second = released_test_rows(29).tolist()
    rows = [("1", "train", "train", "train")] * 29
    rows[first] = ("3", "red", "no red", "crimson")
    rows[second] = ("12345", "leaf", "no red", "red")
    _write_csv(tmp_path, rows)
    colour_image(tmp_path / cc_neg.IMAGES / "000000003.jpg", (255, 0, 0))
    colour_image(tmp_path / cc_neg.IMAGES / "000012345.jpg", (0, 255, 0))
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    scores = find_published("cc_neg_semclip").score(context)
    named = {name.removeprefix("cc_neg_semclip/"): found.tolist() for name, found in scores.values.items()}
    assert named["original/recall_at_1"] == [1, 1]
    assert named["paraphrase/recall_at_1"] == [1, 0]
    assert named["paraphrase/recall_at_3"] == [1, 1]
    assert named["original_over_negation"] == [1, 0], "the second is a tie"
    assert scores.scalars == {"cc_neg_semclip/composite_score": pytest.approx((1 + 0.5 + 0) / 3)}
    assert context.notes == ["ccneg_paraphrased.csv: 29 found, 228,246 published"]


def test_semclip_sees_all_of_a_wide_picture(tmp_path: Path) -> None:
    """Its images are squashed (the released src/dataset.py), so the red sides outweigh the green middle."""
    _write_csv(tmp_path, [("1", "red", "leaf", "red")] * 10)
    wide_image(tmp_path / cc_neg.IMAGES / "000000001.jpg", middle=(0, 255, 0), sides=(255, 0, 0))
    scores = find_published("cc_neg_semclip").score(toy_context(tmp_path, TABLE, allow_partial=True))
    assert scores.values["cc_neg_semclip/original_over_negation"].tolist() == [1]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_composite_is_a_share_and_chance_over_negations_adds_nothing(a: float, b: float, c: float) -> None:
    assert 0 <= composite_score(a, b, c) <= 1
    assert composite_score(a, b, min(c, 0.5)) == pytest.approx((a + b) / 3)
    assert composite_score(1, 1, 1) == 1
