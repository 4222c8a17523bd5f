"""A synthesised text that a published test set holds does not train."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from components.data.leaks.guard import Guard, KnownSet
from components.data.leaks.report import text_key
from components.validation import validate
from tests.unit.validation.conftest import (
    GOOD_1,
    Answer,
    fake_probes,
    read_outcome,
    strict_settings,
    write_inputs,
)

PUBLISHED = "A little dog is to the left of a big cat before red."


def _known(folder: Path) -> None:
    """What stage `prepare` writes of a test set with one text."""
    key = text_key(PUBLISHED)
    assert key is not None
    folder.mkdir()
    Guard(Path("sets"), False, [KnownSet("vg_relation", texts=frozenset({key}))]).write(folder)


def test_a_text_of_a_test_set_is_quarantined_with_the_set_as_reason(tmp_path: Path) -> None:
    _known(tmp_path / "leaks")
    leak = PUBLISHED.upper().replace(" ", "  ").replace(".", "!")
    files = write_inputs(tmp_path, [Answer(text_1=leak), Answer(pair=1), Answer(pair=2, text_2=leak)])
    files, settings = replace(files, leaks=tmp_path / "leaks"), strict_settings()
    validate.run(settings, "paraphrases", files, fake_probes(settings, files))
    outcome = read_outcome(files)
    assert [row["paraphrase_1"] for row in outcome.accepted] == [GOOD_1]
    reasons = {row["id"]: row["reason"].split(";") for row in outcome.quarantine}
    assert "paraphrase_1_leak:published_vg_relation" in reasons["pair0"]
    assert "paraphrase_2_leak:published_vg_relation" in reasons["pair2"]
    assert set(reasons) == {"pair0", "pair2"}


def test_without_test_sets_nothing_is_a_leak(tmp_path: Path) -> None:
    files, settings = write_inputs(tmp_path, [Answer(text_1=PUBLISHED)]), strict_settings()
    files = replace(files, leaks=tmp_path / "leaks")
    assert fake_probes(settings, files).find_leak(PUBLISHED) is None
