"""Perturbations of captions, and COCO-TP on captions perturbed by hand and on generated ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from research.experiments import coco_tp
from research.experiments.parts.perturbations import perturbations, perturbed
from tests.support.published import coco, refused, scored
from tests.unit.data.test_sets.writing import write_files

CAPTION = "Two children sitting together near some wooden tables outside."
SYNONYMS = {"children": ["kids", "youngsters"], "wooden": ["timber"]}
ALL = perturbations(lambda word: SYNONYMS.get(word, []))


def _words(name: str, severity: int = 7) -> list[str]:
    return perturbed(CAPTION, ALL[name], severity, 1).split(" ")


@pytest.mark.parametrize("name", ["keyboard", "ocr", "char_insert", "char_replace", "char_swap", "char_delete"])
def test_characters_change_in_a_share_of_the_words_that_grows(name: str) -> None:
    assert sum(map(str.__ne__, CAPTION.split(" "), _words(name, 1))) <= 1
    changed = [(old, new) for old, new in zip(CAPTION.split(" "), _words(name), strict=True) if old != new]
    assert 1 <= len(changed) <= 3
    growth = {"char_insert": 1, "char_delete": -1}.get(name, 0)
    for old, new in changed:
        assert len(new) - len(old) == growth * max(int(0.3 * len(old)), 1)
        assert len(old) >= 4 or name == "ocr", "short words stay"
        assert Counter(old) == Counter(new) or name != "char_swap"


def test_words_and_keys() -> None:
    assert all(_words(name) == _words(name) for name in ALL)
    assert all(perturbed("", perturb, 7, 0).strip(".,!?;:") in ("", " ") for perturb in ALL.values())
    assert Counter(_words("word_swap")) == Counter(CAPTION.split(" "))
    assert _words("word_swap") != CAPTION.split(" ")
    kept = iter(CAPTION.split(" "))
    assert all(word in kept for word in _words("word_deletion")), "what is left is in order"
    assert [word for word in _words("insert_punctuation") if word not in set(".,!?;:")] == CAPTION.split(" ")
    assert {"kids", "youngsters"} & set(_words("synonym_replacement"))
    assert "timber" in _words("synonym_replacement")
    inserted = Counter(_words("word_insertion")) - Counter(CAPTION.split(" "))
    assert inserted.total() == 3
    assert set(inserted) <= {"kids", "youngsters", "timber"}


TABLE = {"red": (1, 0, 0), "leaf": (0, 1, 0), "rde": (0, 0.9, 0.1), "blank": (0, 0, 0)}
NAMES = ["COCO_val2014_000000000001.jpg", "COCO_val2014_000000000002.jpg"]
CLEAN, WRONG = [["red", "red"], ["leaf"]], [["red", "rde"], ["leaf"]]


def _write(folder: Path, path: str, captions: list[Any]) -> None:
    rows = [{"image": f"val2014/{name}", "caption": texts} for name, texts in zip(NAMES, captions, strict=True)]
    write_files(folder, {path: rows})


def _coco(folder: Path, captions: list[list[str]] = CLEAN) -> None:
    write_files(folder, {"coco_test_karpathy.json": coco(dict(zip(NAMES, captions, strict=True)))})
    write_files(folder / "val2014", {NAMES[0]: (255, 0, 0), NAMES[1]: (0, 255, 0)})


def _method(method: str, severity: int) -> str:
    return f"coco_tp/annotation_{method}/{severity}/coco_karpathy_test.json"


def test_rsum_and_drop_by_hand(tmp_path: Path) -> None:
    """Clean all six recalls are 1; with one wrong caption of three, text to image at 1 is 2/3, all else stays 1."""
    _coco(tmp_path)
    for method in coco_tp.LEVELS["character"].values():
        _write(tmp_path, _method(method, 1), CLEAN)
        _write(tmp_path, _method(method, 2), WRONG)
    _write(tmp_path, "coco_tp/formal.json", WRONG)
    found = scored("coco_tp", tmp_path, TABLE).scalars
    wanted = {
        "clean/rsum": 6,
        "formal/rsum": 6 - 1 / 3,
        "formal/relative_drop": 1 / 18,
        # The mean of both severities.
        "keyboard/rsum": 6 - 1 / 6,
        "character/relative_drop": 1 / 36,
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert not {"sentence/rsum", "word/rsum", "all/rsum"} & set(found), "some are missing"


def test_the_average_is_over_the_sixteen(tmp_path: Path) -> None:
    """Fifteen perturbations lose nothing, so the average loses a sixteenth of the other one's drop."""
    _coco(tmp_path)
    for methods in coco_tp.LEVELS.values():
        for name in methods:
            _write(tmp_path, f"coco_tp/{name}.json", WRONG if name == "ocr" else CLEAN)
    found = scored("coco_tp", tmp_path, TABLE)
    assert found.scalars["all/rsum"] == pytest.approx(6 - 1 / 3 / 16)
    assert found.scalars["all/relative_drop"] == pytest.approx(1 / 18 / 16)
    assert found.scalars["sentence/relative_drop"] == pytest.approx(0)
    assert not found.declared.metric("coco_tp/all/relative_drop").higher_is_better


def test_other_files_are_refused(tmp_path: Path) -> None:
    _coco(tmp_path)
    for captions, message in (
        (None, "has no perturbed captions"),
        ([["red"], ["leaf"]], "other images or numbers of captions"),
        ([[["red"], "red"], ["leaf"]], "other images or numbers of captions"),
    ):
        if captions:
            _write(tmp_path, _method("ip", 1), captions)
        context = refused("coco_tp", tmp_path, message, TABLE, allow_partial=True)
    assert any("1 rows lack caption (row 0" in note for note in context.notes), "nlpaug wrote a list for a caption"


def test_only_five_captions_of_an_image_are_perturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _coco(tmp_path, [["red"] * 6, ["leaf"]])
    calls: list[tuple[str, float]] = []

    def spoil(text: str, rate: float, draw: Any) -> str:
        calls.append((text, rate))
        return "blank"

    monkeypatch.setattr(coco_tp, "perturbations", lambda synonyms: {"keyboard": spoil})
    monkeypatch.setattr(coco_tp, "SEVERITIES", (2, 4))
    found = scored("coco_tp_generated", tmp_path, TABLE).scalars
    assert calls == [("red", 0.1)] * 5 + [("leaf", 0.1)] + [("red", 0.2)] * 5 + [("leaf", 0.2)]
    # "blank" ties on both pictures and goes to the first. Text to image at 1: all but the second picture's caption.
    # Image to text: red finds its sixth caption first; green ties on all but that and finds its own behind five.
    assert found["keyboard/rsum"] == pytest.approx(6 / 7 + 1 + 1 + 1 / 2 + 1 / 2 + 1)
