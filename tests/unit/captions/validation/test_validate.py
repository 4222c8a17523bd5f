"""Answers are joined without loss; every reason has a row that triggers it; no result depends on the shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from components.captions.validation import validate
from components.captions.validation.joining import join_answers, shown_columns
from components.captions.validation.report import Tally
from components.captions.validation.rules.probes import find_probes
from components.captions.validation.rules.tables import find_table
from components.core.settings import Limits, Settings
from components.core.system.errors import InputError
from components.core.tables.records import GENERATIONS, PAIRS
from tests.unit.captions.validation.conftest import (
    EVALUATION_QUERY,
    GOOD_1,
    Answer,
    Written,
    fake_probes,
    missed,
    strict_settings,
    validated,
    write_answers,
    write_paraphrases,
    write_texts,
)

ENGLISH = [("a dog in front of the Eiffel Tower at night", "At night a dog sits before the Eiffel Tower")]
GERMAN = [
    ("ein Hund liegt auf dem grünen Gras", "Auf dem grünen Rasen liegt ein Tier"),
    ("ein Mann mit Hut vor einem Haus", "Vor dem Gebäude steht ein Herr mit Kopfbedeckung"),
    ("eine Frau trinkt Kaffee am Fenster", "Am Fenster sitzt eine Dame mit einer Tasse"),
    ("Zwei Kinder im Park", "Im Park spielen zwei Kinder"),
]
FAULTS: dict[str, dict[str, Any]] = {
    "paraphrase_1_length": {"text_1": "dog cat"},
    "paraphrase_2_length": {"text_2": "word " * 31},
    "paraphrase_2_tokens": {"text_2": "Verbose: a verbose tiny hound left of a huge tabby on scarlet."},
    "paraphrase_1_copies:source": {"text_1": "img 7 SMALL dog left of large cat, red bg, jpg!"},
    "paraphrase_2_copies:source": {"text_2": "a small dog SITS left of a large cat; red background"},
    "paraphrase_2_few_new_words": {"text_2": "Red background, a large cat right of a small dog."},
    "paraphrase_1_echo:lead_in": {"text_1": "Sure! A small dog left of a large cat, red background."},
    "paraphrase_2_echo:prompt": {"text_2": "Concisely while preserving the meaning, tiny hound left of huge tabby."},
    "paraphrase_1_leak:sentence": {"text_1": EVALUATION_QUERY.upper()},
    "paraphrase_1_leak:frame": {"text_1": "Someone put a small dog left of a large cat and painted the rest red."},
    "paraphrase_2_leak:word": {"text_2": "Scarlet backdrop; a tiny canine waits left of one huge tabby."},
    "paraphrase_1_fault:relation": {"text_1": "A small dog sits right of a large cat, red background."},
    "paraphrase_1_fault:colour": {"text_1": "A small dog sits left of a large cat, blue background."},
    "paraphrase_2_fault:size": {"text_2": "Scarlet backdrop; a huge hound waits to the left of one huge tabby."},
    "paraphrase_2_similarity": {"text_2": "Unrelated scarlet; a unrelated tiny hound left of a huge tabby."},
    "paraphrase_1_rejected:too long, wants 15": {"text_1": None, "found_2": False, "reason_1": "too long; wants 15"},
    "paraphrase_2_rejected:no parse": {"text_2": None, "reason_2": "no parse"},
    "paraphrase_2_rejected:never asked": {"found_2": False},
    "paraphrase_2_rejected:empty answer": {"text_2": "  "},
    "duplicate:sample": {"pair": 0, "sample": 1, "text_1": "a small DOG sits left of a large cat - red background"},
}
SEVERAL = "Sure! An unrelated canine sits right of a large cat, red."


def _planted() -> list[Answer]:
    """A good row, a row with each fault, and a good row."""
    faulty = [Answer(**{"pair": pair} | fault) for pair, fault in enumerate(FAULTS.values(), start=1)]
    return [Answer(), *faulty, Answer(pair=90, text_1=SEVERAL), Answer(pair=91)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return validated(write_paraphrases(tmp_path_factory.mktemp("planted"), _planted()))


@pytest.mark.parametrize("language", [("en", "de"), ("de", "en"), None])
def test_rows_of_two_languages_are_judged_by_their_own(language: Any, tmp_path: Path) -> None:
    good = [*GERMAN, *ENGLISH * 2]
    bad = [
        ("a walk through London at dawn", "Walking through a city in the early morning", "lost_name:name"),
        ("a red car on the road in the rain", "An unrelated thing is on the wet road", "similarity"),
    ]
    if language is not None:
        bad.append(("a red car parked on the street", "Ein rotes Auto parkt auf der Straße", "language:de"))
    rows = [*good, *(row[:2] for row in bad)]
    files = write_texts(tmp_path, "query_paraphrases", [text for _, text in rows])
    answers = [{"id": f"pair{number}", "source": source, "text": text} for number, (source, text) in enumerate(rows)]
    write_answers(files, "query_paraphrases", "query_paraphrase", answers)
    tables = {"query_paraphrases": Limits()}
    written = validated(files, "query_paraphrases", language=language, accept_unchecked=True, tables=tables)
    assert [row["query"] for row in written.accepted] == [source for source, _ in good]
    reasons = [row["reason"].removeprefix("paraphrase_").split(";")[0] for row in written.quarantine]
    assert reasons == [row[2] for row in bad]


def test_one_answer_to_many_captions_is_rejected_in_every_language(tmp_path: Path) -> None:
    constant = "Dieses Bild zeigt einen schönen Tag"
    rows = [(source, constant) for source, _ in (*GERMAN, *ENGLISH)]
    # Two captions may say the same thing.
    rows += [("ein Hund am Strand", "Am Meer ist ein Tier"), ("ein Hund am Meer", "Am Meer ist ein Tier!"), *GERMAN[:1]]
    files = write_texts(tmp_path, "query_paraphrases", [text for _, text in rows])
    answers = [{"id": f"pair{number}", "source": source, "text": text} for number, (source, text) in enumerate(rows)]
    write_answers(files, "query_paraphrases", "query_paraphrase", answers)
    options = {
        "language": None,
        "accept_unchecked": True,
        "tables": {"query_paraphrases": Limits(keep_numbers=False, keep_names=False)},
    }
    written = validated(files, "query_paraphrases", **options)
    assert [row["paraphrase"] for row in written.accepted] == [text for _, text in rows[5:]]
    assert {row["reason"].rpartition(";")[2] for row in written.quarantine} == {"duplicate:constant"}
    options["tables"] = {"query_paraphrases": Limits(keep_numbers=False, keep_names=False, max_same_share=1.0)}
    assert len(validated(files, "query_paraphrases", **options).accepted) == len(rows)


def test_a_table_that_nothing_compares_must_be_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def outcome(**limits: Any) -> str:
        try:
            validated(files, **{"check_scene_facts": False, "language": "de"} | limits)
        except InputError as error:
            return str(error)
        return capsys.readouterr().out

    files = write_paraphrases(tmp_path, [Answer()])
    fault = "paraphrases: nothing compares the meaning of answers in German: MiniLM reads English"
    ways = "set synthesize.tasks.paraphrase_1.judge_llm and synthesize.tasks.paraphrase_2.judge_llm to a model"
    for language in ("de", ("en", "de")):
        assert outcome(language=language).startswith(f"{fault}: {ways}")
    assert fault in outcome(accept_unchecked=True)
    for limits in ({"similarity_model": "folder"}, {"language": "en"}, {"language": None}, {"filters": False}):
        assert fault not in outcome(**limits)
    settings = strict_settings(check_scene_facts=False, language="de")
    judged = {
        name: task.model_copy(update={"judge_llm": "student"}) for name, task in settings.synthesize.tasks.items()
    }
    update = {"synthesize": settings.synthesize.model_copy(update={"tasks": judged})}
    validate.run(settings.model_copy(update=update), "paraphrases", files, fake_probes(settings, files))
    assert fault not in capsys.readouterr().out


def test_faults_are_quarantined_with_their_reasons_and_no_row_is_lost(planted: Written) -> None:
    assert [row["id"] for row in planted.accepted] == ["pair0", "pair91"]
    row = planted.accepted[0]
    assert (row["sample"], row["similarity_1"], row["similarity_2"]) == (0, 0.8, 0.8)
    assert row["caption"].startswith("IMG_7")
    assert [row["id"] for row in planted.quarantine] == [f"pair{answer.pair}" for answer in _planted()[1:-1]]
    assert missed([(reason,) for reason in FAULTS], planted.quarantine[:-1]) == []
    several = {"paraphrase_1_echo:lead_in", "paraphrase_1_leak:word", "paraphrase_1_similarity"}
    assert several < set(planted.quarantine[-1]["reason"].split(";")), "all reasons of a row are named"
    of_none = next(row for row in planted.quarantine if row["reason"].startswith("paraphrase_1_rejected"))
    assert of_none["reason"] == "paraphrase_1_rejected:too long, wants 15", "without an answer, no other reason"
    summary = planted.summary
    assert (summary["rows"], summary["accepted"], summary["quarantined"]) == (len(FAULTS) + 3, 2, len(FAULTS) + 1)
    assert summary["rejected_by_reason"]["paraphrase_2_rejected:no parse"] == 1
    assert summary["rejected_by_reason"].keys() >= FAULTS.keys()


def test_results_do_not_depend_on_the_shards(planted: Written, tmp_path: Path) -> None:
    parts = validated(write_paraphrases(tmp_path, _planted()), shard_rows=7)
    assert (planted.summary["shards"], parts.summary["shards"]) == (1, 4)
    assert parts.summary | {"shards": 1} == planted.summary
    for folder in ("data", "quarantine"):
        one, other = (next((found.files.project / folder).rglob("*.parquet")) for found in (parts, planted))
        assert one.read_bytes() == other.read_bytes()


def test_a_pair_whose_samples_follow_each_other_stays_in_one_shard(tmp_path: Path) -> None:
    pairs = [0, 0, 0, 1, 2, 2, 3]
    files = write_paraphrases(tmp_path, [Answer(pair=pair, sample=sample) for sample, pair in enumerate(pairs)])
    table = find_table("paraphrases")
    with join_answers(table, files.captions / "paraphrases", files.pairs, files.quarantine) as joined:
        shards = [shard["id"].tolist() for shard in joined.shards(2)]
        assert shards == [["pair0"] * 3, ["pair1"], ["pair2"] * 2 + ["pair3"]]
        assert [shard["row"].tolist() for shard in joined.shards(100)] == [list(range(7))]
        assert all((shard.index == shard["row"]).all() for shard in joined.shards(2))


@pytest.mark.parametrize(
    ("limit", "share", "fault", "message"),
    [
        ("min_accepted_share", 0.6, "paraphrase_1_fault:colour", "accepted share 0.500 breaks validate.min_accepted"),
        ("max_echo_share", 0.4, "paraphrase_1_echo:lead_in", "echo share 0.500 breaks validate.max_echo_share 0.4"),
        ("max_leak_share", 0.4, "paraphrase_2_leak:word", "leak share 0.500 breaks validate.max_leak_share 0.4"),
    ],
)
def test_a_broken_share_fails_the_stage(tmp_path: Path, limit: str, share: float, fault: str, message: str) -> None:
    files = write_paraphrases(tmp_path, [Answer(**FAULTS[fault]), Answer(pair=1)])
    with pytest.raises(InputError, match=f"^[^\n]*{message}[^\n]*$") as caught:
        validated(files, **{limit: share})
    written = tmp_path / "quarantine" / "paraphrases"
    assert '"passed": false' in (written / "summary.json").read_text("utf-8")
    assert (written / "rejected.parquet").exists()
    page = tmp_path / "docs" / "paraphrases" / "index.html"
    assert all(text in str(caught.value) for text in (fault, f"look at {page} and {written}, then try another model"))


def test_limits_hold_for_the_whole_table_and_a_share_at_its_limit_passes(tmp_path: Path) -> None:
    fault = FAULTS["paraphrase_1_leak:frame"]
    files = write_paraphrases(tmp_path, [Answer(pair=pair, **(fault if pair > 1 else {})) for pair in range(4)])
    summary = validated(files, shard_rows=2, min_accepted_share=0.5, max_leak_share=0.5).summary
    assert summary["passed"] is True
    expectations = {entry["column"]: entry for entry in reversed(summary["expectations"])}
    assert expectations["accepted"]["observed"] == 0.5
    assert (expectations["leak_1"]["failing_rows"], expectations["leak_1"]["success"]) == (2, False)


def test_only_the_outputs_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    files = validated(write_paraphrases(tmp_path, [Answer(), Answer(pair=1)]), docs=True, shard_rows=1).files
    assert list((tmp_path / "cwd").iterdir()) == []
    assert [path.name for path in (files.project / "data" / "validated").rglob("*.*")] == ["paraphrases.parquet"]
    assert {path.name for path in (files.quarantine / "paraphrases").iterdir()} == {"rejected.parquet", "summary.json"}


def test_an_interrupted_stage_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(Tally, "add_suite", fail)
    with pytest.raises(RuntimeError, match="lost"):
        validated(write_paraphrases(tmp_path, [Answer(), Answer(pair=1)]), shard_rows=1)
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []
    assert list((tmp_path / "quarantine" / "paraphrases").iterdir()) == []


def test_other_sources_have_no_scenes(raw_params: dict[str, Any], tmp_path: Path) -> None:
    evaluation = write_paraphrases(tmp_path, [Answer(text_1=GOOD_1)]).evaluation
    raw_params["prepare"] |= {"source": "folder", "folder": "pictures"}
    with pytest.raises(InputError, match=r"validate\.check_scene_facts"):
        find_probes(Settings.model_validate(raw_params), evaluation)
    raw_params["validate"]["check_scene_facts"] = False
    probes = find_probes(Settings.model_validate(raw_params), evaluation)
    assert probes.find_leak("A canine in the grass.") is None
    assert probes.find_leak(EVALUATION_QUERY) == "sentence"
    assert probes.facts is None


def test_unknown_tables_and_lost_inputs(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for table, message in (
        ("class_descriptions", r"^data/captions/class_descriptions/class_description\.parquet is missing"),
        ("paraphrase", r"validate\.tables: 'paraphrase' is unknown: did you mean 'paraphrases'\?"),
    ):
        with pytest.raises(InputError, match=message):
            validate.run(settings, table)


def _joined(files: Any, table: str = "paraphrases") -> Any:
    return join_answers(find_table(table), files.captions / table, files.pairs, files.quarantine)


def _join(files: Any, size: int = 1000) -> Any:
    with _joined(files) as joined:
        return pd.concat(joined.shards(size))


def test_first_answers_come_in_order_and_white_space_is_none(tmp_path: Path) -> None:
    answers = [Answer(pair=2), Answer(pair=1, found_2=False), Answer(pair=1, sample=1)]
    frame = _join(write_paraphrases(tmp_path, answers))
    assert list(zip(frame["id"], frame["sample"], strict=True)) == [("pair2", 0), ("pair1", 0), ("pair1", 1)]
    assert list(frame["rejected_paraphrase_2"]) == [None, "never asked", None]
    assert list(frame["row"]) == [0, 1, 2]
    answers = [Answer(text_2="\u2003\u00a0\x1c\n"), Answer(pair=1, text_2=" \u2003a")]
    answers.append(Answer(pair=2, text_1=None, found_2=False, reason_1="failed: a; b\x00c"))
    frame = _join(write_paraphrases(tmp_path / "white", answers))
    assert frame["paraphrase_2"].tolist() == [None, " \u2003a", None]
    assert frame["rejected_paraphrase_1"].tolist() == [None, None, "failed: a, b c"]
    assert frame["rejected_paraphrase_2"].tolist() == ["empty answer", None, None]


def _change(path: Any, table: Any, change: Callable[[pa.Table], pa.Table]) -> None:
    table.write(path, change(table.read(path)))


def _set(column: str, value: str | None) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(column)
        return table.set_column(at, table.schema.field(at), pa.array([value] * table.num_rows, pa.string()))

    return change


def test_tables_that_do_not_belong_together_are_named_with_file_and_row(tmp_path: Path) -> None:
    faults: list[tuple[str, Callable[[pa.Table], Any], str]] = [
        ("paraphrase_1", lambda table: table.slice(0, 0), r"paraphrase_1\.parquet has no rows"),
        (
            "paraphrase_1",
            lambda table: pa.concat_tables([table, _set("text", "other")(table)]),
            r"_1\.parquet has two answers .*pair0",
        ),
        ("paraphrase_1", lambda table: table.slice(1), r"_2\.parquet has answers for rows that .*_1\.parquet lacks"),
        ("paraphrase_1", _set("source", "other"), r"_1\.parquet has a question about a caption .*id pair0, sample 0"),
        ("paraphrase_2", _set("source", "other"), r"_2\.parquet rewrites a text that differs .*id pair0, sample 0"),
    ]
    for name, change, message in faults:
        files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
        _change(files.captions / "paraphrases" / f"{name}.parquet", GENERATIONS, change)
        with pytest.raises(InputError, match=message):
            _join(files)
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
    _change(files.pairs, PAIRS, lambda table: table.filter(pc.equal(table.column("id"), "pair1")))
    with pytest.raises(InputError, match="id pair0, sample 0"):
        _join(files)
    path = files.captions / "paraphrases" / "paraphrase_2.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"paraphrase_2\.parquet cannot be read"):
        _join(files)


def test_a_caption_that_an_image_has_twice_and_the_first_of_two_rows_count(tmp_path: Path) -> None:
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1), Answer(pair=2)])
    once = _join(files)
    for name in ("paraphrase_1", "paraphrase_2"):
        path = files.captions / "paraphrases" / f"{name}.parquet"
        _change(
            path, GENERATIONS, lambda table: pa.concat_tables([table.slice(0, 2), table.slice(0, 1), table.slice(2)])
        )
    pd.testing.assert_frame_equal(_join(files), once)
    files = write_paraphrases(tmp_path, [Answer()])
    pairs = PAIRS.read(files.pairs)
    other = _set("facts", "other")(_set("caption", "other caption")(pairs))
    PAIRS.write(files.pairs, pa.concat_tables([pairs, other]))
    assert _join(files)["facts"].tolist() == [pairs["facts"][0].as_py()]


def test_odd_paths_are_joined_and_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
    odd = tmp_path / "it's [a] folder*?"
    odd.mkdir()
    (files.captions / "paraphrases").rename(odd / "paraphrases")
    assert len(_join(replace(files, captions=odd))) == 2
    assert list(files.quarantine.iterdir()) == [], "the join leaves no file behind"

    def full(*_: Any) -> None:
        raise duckdb.IOException("Could not write all bytes to file\nNo space left on device")

    monkeypatch.setattr("components.captions.validation.joining._join", full)
    files = write_paraphrases(tmp_path, [Answer()])
    message = r"captions/paraphrases: the answers cannot be joined \(Could not write.*free disk space"
    with pytest.raises(InputError, match=message):
        _join(files)
    assert list(files.quarantine.iterdir()) == []


def test_classes_need_no_pairs_and_pairs_without_facts_are_named(tmp_path: Path) -> None:
    files = write_texts(tmp_path, "class_descriptions", ["It has four legs."], "dog")
    files.pairs.unlink()
    with _joined(files, "class_descriptions") as joined:
        (frame,) = joined.shards(10)
    assert frame[["class_name", "description", "facts"]].to_numpy().tolist() == [["dog", "It has four legs.", None]]
    files = write_paraphrases(tmp_path, [Answer(), Answer(pair=1)])
    _change(files.pairs, PAIRS, lambda rows: pa.concat_tables([rows.slice(0, 1), _set("facts", None)(rows.slice(1))]))
    with _joined(files) as joined, pytest.raises(InputError, match=r"pair pair1 has no facts: set validate\.check"):
        joined.require_facts(files.pairs)


def test_without_the_judge_its_candidates_are_the_answers() -> None:
    for name, candidates in (("negations", "negate_semclip"), ("semclip_paraphrases", "paraphrase_semclip")):
        judged, unjudged = find_table(name), find_table(name).unjudged()
        assert [answer.task for answer in unjudged.answers] == [candidates]
        assert [answer.checks for answer in unjudged.answers] == [answer.checks for answer in judged.answers]
        assert shown_columns(unjudged) == shown_columns(judged), "a verdict column stays, empty"
    assert find_table("paraphrases").unjudged() == find_table("paraphrases")
