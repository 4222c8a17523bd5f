"""Every reason has a row that triggers it; accepted and quarantined rows are all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from components.core.errors import InputError, run_command
from components.core.settings import Settings
from components.validation import validate
from components.validation.measuring.probes import find_probes

QUERY = "Hidden query: a little pup beside some big kitty, all scarlet."
FRAME = "Someone put a small dog left of a large cat and painted the rest red."
FAULTS: dict[str, dict[str, Any]] = {
    "paraphrase_1_length": {"text_1": "dog cat"},
    "paraphrase_2_length": {"text_2": "word " * 31},
    "paraphrase_1_tokens": {"text_1": "A verbose small dog left of a large cat, red."},
    "paraphrase_2_tokens": {"text_2": "Verbose: a verbose tiny hound left of a huge tabby on scarlet."},
    "paraphrase_1_copies:source": {"text_1": "img 7 SMALL dog left of large cat, red bg, jpg!"},
    "paraphrase_2_copies:source": {"text_2": "a small dog SITS left of a large cat; red background"},
    "paraphrase_2_few_new_words": {"text_2": "Red background, a large cat right of a small dog."},
    "paraphrase_1_echo:lead_in": {"text_1": "Sure! A small dog left of a large cat, red background."},
    "paraphrase_2_echo:prompt": {
        "text_2": "Concisely while preserving the meaning, tiny hound left of huge tabby, scarlet."
    },
    "paraphrase_1_leak:sentence": {"text_1": QUERY.upper()},
    "paraphrase_2_leak:sentence": {"text_2": QUERY},
    "paraphrase_1_leak:frame": {"text_1": FRAME},
    "paraphrase_2_leak:word": {"text_2": "Scarlet backdrop; a tiny canine waits left of one huge tabby."},
    "paraphrase_1_fault:relation": {"text_1": "A small dog sits right of a large cat, red background."},
    "paraphrase_1_fault:colour": {"text_1": "A small dog sits left of a large cat, blue background."},
    "paraphrase_2_fault:size": {"text_2": "Scarlet backdrop; a huge hound waits to the left of one huge tabby."},
    "paraphrase_1_similarity": {"text_1": "A small unrelated dog sits left of a large cat, red."},
    "paraphrase_2_similarity": {"text_2": "Unrelated scarlet; a unrelated tiny hound left of a huge tabby."},
    "paraphrase_1_rejected:too long, wants 15": {"text_1": None, "found_2": False, "reason_1": "too long; wants 15"},
    "paraphrase_2_rejected:no parse": {"text_2": None, "reason_2": "no parse"},
    "paraphrase_2_rejected:never asked": {"found_2": False},
    "paraphrase_2_rejected:empty answer": {"text_2": "  "},
}


def test_good_row_is_accepted(stage: Any, answer: Any) -> None:
    outcome = stage([answer()])
    (row,) = outcome.accepted
    assert (row["id"], row["sample"], row["similarity_1"], row["similarity_2"]) == ("pair0", 0, 0.8, 0.8)
    assert row["caption"].startswith("IMG_7")
    assert outcome.quarantine == []


@pytest.mark.parametrize("reason", FAULTS)
def test_fault_is_quarantined_with_its_reason(stage: Any, answer: Any, reason: str) -> None:
    outcome = stage([answer(**FAULTS[reason]), answer(pair=1)])
    assert [row["id"] for row in outcome.accepted] == ["pair1"]
    (row,) = outcome.quarantine
    assert reason in row["reason"].split(";")
    assert outcome.summary["rejected_by_reason"][reason] == 1


def test_all_reasons_of_a_row_are_named(stage: Any, answer: Any) -> None:
    fault = {"text_1": "Sure! An unrelated canine sits right of a large cat, red."}
    (row,) = stage([answer(**fault)]).quarantine
    wanted = {"paraphrase_1_echo:lead_in", "paraphrase_1_leak:word", "paraphrase_1_similarity"}
    assert wanted < set(row["reason"].split(";"))


def test_second_sample_that_says_the_same_is_a_duplicate(stage: Any, answer: Any) -> None:
    same = answer(sample=1, text_1="a small dog sits left of a LARGE cat - red background")
    other_pair = answer(pair=1)
    outcome = stage([answer(), same, other_pair])
    assert [(row["id"], row["sample"]) for row in outcome.accepted] == [("pair0", 0), ("pair1", 0)]
    assert [(row["sample"], row["reason"]) for row in outcome.quarantine] == [(1, "duplicate:sample")]


@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(faults=st.lists(st.sampled_from([None, *FAULTS]), min_size=1, max_size=30))
def test_no_row_is_lost(stage: Any, answer: Any, faults: list[str | None]) -> None:
    outcome = stage([answer(pair=pair, **FAULTS.get(fault or "", {})) for pair, fault in enumerate(faults)])
    assert [row["id"] for row in outcome.accepted] == [f"pair{i}" for i, fault in enumerate(faults) if not fault]
    ids = [row["id"] for row in (*outcome.accepted, *outcome.quarantine)]
    assert sorted(ids) == sorted(f"pair{i}" for i in range(len(faults)))
    summary = outcome.summary
    assert (summary["rows"], summary["accepted"]) == (len(faults), len(outcome.accepted))
    assert summary["quarantined"] == len(outcome.quarantine)
    assert all(row["reason"] for row in outcome.quarantine)


@pytest.mark.parametrize(
    ("limits", "fault", "named"),
    [
        ({"min_accepted_share": 0.6}, "paraphrase_1_fault:colour", "accepted share 0.500 breaks validate.min_accepted"),
        ({"max_echo_share": 0.4}, "paraphrase_1_echo:lead_in", "echo share 0.500 breaks validate.max_echo_share 0.4"),
        ({"max_leak_share": 0.4}, "paraphrase_2_leak:word", "leak share 0.500 breaks validate.max_leak_share 0.4"),
    ],
)
def test_broken_share_fails_the_stage_with_outputs_written(
    *, stage: Any, answer: Any, tmp_path: Path, limits: dict[str, float], fault: str, named: str
) -> None:
    with pytest.raises(InputError, match=named) as caught:
        stage([answer(**FAULTS[fault]), answer(pair=1)], **limits)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)
    written = tmp_path / "quarantine" / "paraphrases"
    assert '"passed": false' in (written / "summary.json").read_text("utf-8")
    assert (written / "rejected.parquet").exists()
    assert f"look at {tmp_path / 'docs' / 'paraphrases' / 'index.html'} and {written}" in str(caught.value)


def test_share_at_its_limit_passes(stage: Any, answer: Any) -> None:
    answers = [answer(**FAULTS["paraphrase_1_leak:frame"]), answer(pair=1)]
    assert stage(answers, min_accepted_share=0.5, max_leak_share=0.5).summary["passed"] is True


def test_nothing_is_written_beside_the_outputs(
    documented_stage: Any, answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    outcome = documented_stage([answer(), answer(pair=1)], shard_rows=1)
    assert list((tmp_path / "cwd").iterdir()) == []
    files = outcome.files
    assert [path.name for path in (files.project / "data" / "validated").rglob("*.*")] == ["paraphrases.parquet"]
    assert {path.name for path in (files.quarantine / "paraphrases").iterdir()} == {"rejected.parquet", "summary.json"}


def test_facts_wanted_without_the_embedded_world(inputs: Any, answer: Any, raw_params: dict[str, Any]) -> None:
    raw_params["prepare"] |= {"source": "folder", "folder": "pictures"}
    with pytest.raises(InputError, match=r"validate\.check_facts"):
        find_probes(Settings.model_validate(raw_params), inputs([answer()]).evaluation)


def test_other_sources_know_nothing_of_scenes(inputs: Any, answer: Any, raw_params: dict[str, Any]) -> None:
    raw_params["prepare"] |= {"source": "folder", "folder": "pictures"}
    raw_params["validate"]["check_facts"] = False
    probes = find_probes(Settings.model_validate(raw_params), inputs([answer()]).evaluation)
    assert probes.find_leak("A canine in the grass.") is None
    assert probes.find_leak(QUERY) == "sentence"
    assert probes.facts is None


def test_command_ends_in_one_line_when_inputs_are_missing(
    raw_params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run_command(lambda: validate.run(Settings.model_validate(raw_params), "class_descriptions"))
    assert ended.value.code == 1
    missing = "data/captions/class_descriptions/class_description.parquet"
    assert capsys.readouterr().err.startswith(f"error: {missing} is missing")


def test_all_first_answers_rejected(stage: Any, answer: Any) -> None:
    outcome = stage([answer(**FAULTS["paraphrase_1_rejected:too long, wants 15"])])
    assert outcome.accepted == []
    assert outcome.reasons == {"paraphrase_1_rejected:too long, wants 15"}


def test_a_table_that_params_yaml_does_not_name_is_refused(raw_params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"validate\.tables: 'paraphrase' is unknown: did you mean 'paraphrases'\?"):
        validate.run(Settings.model_validate(raw_params), "paraphrase")
