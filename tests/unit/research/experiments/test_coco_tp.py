"""COCO-TP on captions perturbed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.core.system.errors import InputError
from components.evaluation.benchmarks.published import find_published
from research.experiments import coco_tp
from tests.support.toy_context import colour_image, toy_context

TABLE = {"red": (1, 0, 0), "leaf": (0, 1, 0), "rde": (0, 0.9, 0.1)}
NAMES = ["COCO_val2014_000000000001.jpg", "COCO_val2014_000000000002.jpg"]
CLEAN, WRONG = [["red", "red"], ["leaf"]], [["red", "rde"], ["leaf"]]


def _write(folder: Path, path: str, captions: list[Any]) -> None:
    rows = [{"image": f"val2014/{name}", "caption": texts} for name, texts in zip(NAMES, captions, strict=True)]
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(json.dumps(rows))


def _coco(folder: Path, captions: list[list[str]] = CLEAN) -> None:
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    annotations = [{"image_id": number, "caption": text} for number, texts in enumerate(captions) for text in texts]
    (folder / "coco_test_karpathy.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    colour_image(folder / "val2014" / NAMES[0], (255, 0, 0))
    colour_image(folder / "val2014" / NAMES[1], (0, 255, 0))


def _method(method: str, severity: int) -> str:
    return f"coco_tp/annotation_{method}/{severity}/coco_karpathy_test.json"


def test_rsum_and_drop_by_hand(tmp_path: Path) -> None:
    """Clean all six recalls are 1; with one wrong caption of three, text to image at 1 is 2/3, all else stays 1."""
    _coco(tmp_path)
    for method in coco_tp.LEVELS["character"].values():
        _write(tmp_path, _method(method, 1), CLEAN)
        _write(tmp_path, _method(method, 2), WRONG)
    _write(tmp_path, "coco_tp/formal.json", WRONG)
    found = find_published("coco_tp").score(toy_context(tmp_path, TABLE, allow_partial=True)).scalars
    assert found["coco_tp/clean/rsum"] == pytest.approx(6)
    assert found["coco_tp/formal/rsum"] == pytest.approx(6 - 1 / 3)
    assert found["coco_tp/formal/relative_drop"] == pytest.approx(1 / 18)
    assert found["coco_tp/keyboard/rsum"] == pytest.approx(6 - 1 / 6), "the mean of both severities"
    assert found["coco_tp/character/relative_drop"] == pytest.approx(1 / 36)
    assert not {"coco_tp/sentence/rsum", "coco_tp/word/rsum", "coco_tp/all/rsum"} & set(found), "some are missing"


def test_the_average_is_over_the_sixteen(tmp_path: Path) -> None:
    """Fifteen perturbations lose nothing, so the average loses a sixteenth of the other one's drop."""
    _coco(tmp_path)
    for methods in coco_tp.LEVELS.values():
        for name in methods:
            _write(tmp_path, f"coco_tp/{name}.json", WRONG if name == "ocr" else CLEAN)
    found = find_published("coco_tp").score(toy_context(tmp_path, TABLE, allow_partial=True)).scalars
    assert found["coco_tp/all/rsum"] == pytest.approx(6 - 1 / 3 / 16)
    assert found["coco_tp/all/relative_drop"] == pytest.approx(1 / 18 / 16)
    assert found["coco_tp/sentence/relative_drop"] == pytest.approx(0)
    declared = find_published("coco_tp")
    assert not any(declared.metric(name).higher_is_better for name in found if name.endswith("drop"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    _coco(tmp_path)
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    for captions, message in (
        (None, "has no perturbed captions"),
        ([["red"], ["leaf"]], "other images or numbers of captions"),
        ([[["red"], "red"], ["leaf"]], "other images or numbers of captions"),
    ):
        if captions:
            _write(tmp_path, _method("ip", 1), captions)
        with pytest.raises(InputError, match=message):
            find_published("coco_tp").score(context)
    assert any("1 rows lack caption (row 0" in note for note in context.notes), "nlpaug wrote a list for a caption"
