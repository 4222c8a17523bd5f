"""`cliptune answers compare`: writers on the same captions, their shares and differences, and the page of answers."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.captions import writers
from components.captions.generating import asking
from components.captions.generating.asking import outcomes
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Request
from components.captions.students import lessons
from components.core.settings import load_settings
from components.core.tables.records import PAIRS
from tests.support.fake_engine import FakeEngine, quoted
from tests.support.server_project import write_captions
from tests.support.student_project import good, plain_probes
from tests.support.typed import cliptune

HOSTILE = "<script>alert(1)</script> A tabby is beside a little hound, number"
PAIRS_FILE = Path("data/pairs/train.parquet")
CAPTIONS = [f"IMG {number} small dog left of a large cat" for number in range(24)]


def _weak(request: Request) -> str | None:
    """A quarter each of: a copy, a failure, nothing usable, and a good answer."""
    (caption,) = quoted(request)
    number = int(caption.split()[1])
    return [f"{HOSTILE} {number}.", None, "", good([caption])][number % 4]


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_params: dict[str, Any]) -> dict[str, FakeEngine]:
    """A project with 24 captions, a good and a weak writer, and a judge that rejects answers about a single digit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_captions(tmp_path, CAPTIONS)
    found = {
        "strong": FakeEngine(lambda request: good(quoted(request)), "strong-1", batch=5),
        "weak": FakeEngine(_weak, "weak-1", batch=5),
        "same": FakeEngine(_weak, "weak-1"),
        "judge": FakeEngine(lambda request: "No" if "IMG 7 " in quoted(request)[0] else "Yes", "judge-1"),
    }
    raw_params["synthesize"]["llms"] |= {name: {"engine": "local"} for name in found}
    server = {"engine": "server", "urls": ["http://127.0.0.1:9/v1"], "model": "m", "prices": [1.0, 2.0]}
    raw_params["synthesize"]["llms"]["paid"] = server
    raw_params["synthesize"]["cached_answers"] = None
    raw_params["validate"]["check_scene_facts"] = False
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw_params))
    made = writers.make_engine

    for module in (writers, asking):
        monkeypatch.setattr(module, "make_engine", lambda block, name: found.get(name) or made(block, name))
    monkeypatch.setattr(lessons, "find_probes", lambda *_: plain_probes())
    return found


def _compare(*options: str) -> dict[tuple[str, str], tuple[float, float, float]]:
    cliptune("answers", "compare", "strong", "weak", "--task", "paraphrase_1", *options)
    values = json.loads(Path("reports/writers/writers.json").read_text())["values"]
    return {(one["measure"], one["writer"]): (one["value"], one["low"], one["high"]) for one in values}


def test_shares_means_and_differences_are_those_of_the_same_captions(engines: dict[str, FakeEngine]) -> None:
    found = _compare("--judge", "judge")
    assert found["accepted", "strong"][0] == 1
    # Wilson's interval of 6 of 24, and Bonett and Price's of 18 losses of 24.
    assert found["accepted", "weak"] == pytest.approx((0.25, 0.1200, 0.4490), abs=1e-4)
    assert found["accepted, less strong", "weak"] == pytest.approx((-0.75, -0.9141, -0.4705), abs=1e-4)
    for rule in ("echo", "failed", "unparsable"):
        assert (found[f"rejected: {rule}", "weak"][0], found[f"rejected: {rule}", "strong"][0]) == (0.25, 0)
    assert found["means the same", "strong"][0] == 23 / 24
    # Of twelve usable answers one is about the seventh picture.
    assert (found["means the same", "weak"][0], found["accepted, and means the same", "weak"][0]) == (11 / 24, 5 / 24)
    assert found["similarity", "weak"][0] == 0.5
    # "Number 7: beside one big tabby sits a little hound.": the caption has the number, and "a" is no content word.
    assert found["words", "strong"][0] == 10
    assert found["new words", "strong"][0] == pytest.approx(8 / 9)


def test_few_captions_have_no_interval_and_captions_of_one_image_are_one_case(engines: dict[str, FakeEngine]) -> None:
    assert _compare("--captions", "19")["accepted", "weak"][1:] == (None, None)
    apart = _compare()["accepted", "weak"]
    rows = PAIRS.read(PAIRS_FILE).to_pydict()
    PAIRS.write(PAIRS_FILE, rows | {"image_id": [f"i{number % 4}" for number in range(24)]})
    together = _compare()["accepted", "weak"]
    assert together[0] == apart[0]
    assert together[1:] == (None, None), "four images, each with answers of one kind, are too few"


def test_the_page_shows_twenty_answers_with_their_verdicts_and_runs_nothing(engines: dict[str, FakeEngine]) -> None:
    assert "0.0 [" not in (shown := cliptune("answers", "compare", "strong", "weak", "--task", "paraphrase_1"))
    assert "▼" in shown
    page = Path("reports/writers/writers.html").read_text("utf-8")
    assert page.count(">accepted: Number ") + page.count(">rejected (") == 40
    assert page.count(">accepted: Number ") >= 20
    assert ">rejected (failed: HTTP 500 after 3 attempts): <" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page


def test_each_question_is_asked_once_and_the_stage_finds_its_answers(engines: dict[str, FakeEngine]) -> None:
    planned = cliptune(
        "answers", "compare", "strong", "paid", "--task", "paraphrase_1", "--judge", "judge", "--dry-run"
    )
    strong, paid = ([cell.strip() for cell in line.split("│")[2:-1]] for line in planned.splitlines()[4:6])
    assert strong == paid == ["24", "0", "24"]
    assert not Path("state").exists()
    _compare()
    _compare()
    assert [len(engines[name].asked) for name in ("strong", "weak", "judge")] == [24, 24 + 6, 0], "failures again"
    planned = cliptune("answers", "compare", "strong", "weak", "--task", "paraphrase_1", "--dry-run")
    assert [line.split("│")[4].strip() for line in planned.splitlines()[4:6]] == ["0", "6"]
    settings = load_settings()
    stage = questions_of(settings, "paraphrase_1", engines["strong"])
    with closing(GenerationStore(settings.synthesize.store)) as store:
        answers = [answer for _, answer, _ in outcomes(store, stage.read())]
    assert [answer is not None for answer in answers] == [True, False] * 24, "the first of its two samples"


def test_a_table_of_answers_is_compared_on_the_captions_that_it_has(engines: dict[str, FakeEngine]) -> None:
    rows = [f"{caption}\t{good([caption])}" for caption in [CAPTIONS[20], *CAPTIONS[:10:2]]]
    Path("people.tsv").write_text("\n".join(["caption\tparaphrase_1", *rows, "another\tAnother."]) + "\n")
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["synthesize"]["llms"]["people"] = {"engine": "table", "path": "people.tsv"}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    shown = cliptune("answers", "compare", "weak", "people", "--task", "paraphrase_1", "--captions", "5", "--json")
    found = json.loads(shown[shown.index("{") :])["answers"]["paraphrase_1"]
    assert [one["caption"] for one in found["people"]] == CAPTIONS[:10:2]
    assert [one["text"] for one in found["people"]] == [good([caption]) for caption in CAPTIONS[:10:2]]
    assert [one["reasons"] == [] for one in found["weak"]] == [False] * 5
    assert len(engines["weak"].asked) == 5


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("strong", "give two writers or more, keys of synthesize.llms"),
        ("strong strong", "writer 'strong' is given twice: give each once"),
        ("strong wek", "synthesize.llms: 'wek' is unknown: did you mean 'weak'"),
        ("weak same", "'weak' and 'same' are one model, weak-1"),
        ("strong weak --task paraphrase_2", "task 'paraphrase_2' does not read captions alone"),
        ("strong weak --task rewritten", "synthesize.tasks: 'rewritten' is unknown"),
        ("strong weak --judge jud", "--judge: synthesize.llms: 'jud' is unknown: did you mean 'judge'"),
        ("strong weak --task negate_semclip --judge judge", "do not mean the same as their captions"),
    ],
)
def test_a_wrong_name_is_one_line_and_nothing_is_asked(
    options: str, fault: str, engines: dict[str, FakeEngine]
) -> None:
    output = cliptune("answers", "compare", *options.split(), code=1)
    assert output.startswith("error: ")
    assert fault in output
    assert len(output.splitlines()) == 1
    assert not any(engine.asked for engine in engines.values())


def test_captions_must_be_there(engines: dict[str, FakeEngine]) -> None:
    PAIRS_FILE.unlink()
    for options in ((), ("--dry-run",)):
        output = cliptune("answers", "compare", "strong", "weak", *options, code=1)
        assert "data/pairs/train.parquet is missing: run `dvc repro`" in output
