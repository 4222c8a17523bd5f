"""Suites find every failing row; a report has uniform samples, metrics, and Data Docs without active content."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from components.captions.validation import validate
from components.captions.validation.report import MOST_REASONS, RejectedRow, TableReport, Tally, prompts_of, sample_rows
from components.captions.validation.rules.table import Rule
from components.captions.validation.rules.tables import find_table
from components.captions.validation.suites import SuiteResult, Suites
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tracking import make_client
from tests.unit.captions.validation.conftest import Answer, validated, write_paraphrases

HOSTILE = "<script>alert(1)</script><img src=https://example.org/x.png> $PATH {{ 7*7 }}"


class Page(HTMLParser):
    """What a page would run or fetch, and where it leads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.fetched, self.links = path, [], []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a":
            self.links.append(found.get("href") or "")
        elif tag in {"script", "iframe", "object"} or "src" in found or tag == "link":
            self.fetched.append(found.get("src") or tag)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data Docs of a good row, a short one with a hostile second answer, and one with a hostile failure."""
    short = Answer(pair=1, text_1="dog cat", text_2=HOSTILE)
    failed = Answer(pair=2, text_1=None, found_2=False, reason_1=HOSTILE)
    files = write_paraphrases(tmp_path_factory.mktemp("docs"), [Answer(), short, failed])
    return validated(files, docs=True).files.docs / "paraphrases"


def test_pages_lead_to_each_other_fetch_nothing_and_escape_texts(docs: Path) -> None:
    index = (docs / "index.html").read_text("utf-8")
    assert "rejected_paraphrases.html" in index
    for suite in ("paraphrases_answers", "paraphrases_shares"):
        assert re.search(rf'href="validations/{suite}/[^"]*\.html"', index), suite
    pages = [Page(path) for path in docs.rglob("*.html")]
    links = [(page, link) for page in pages for link in page.links if link[:1] not in {"#", ""}]
    targets = {(page.path.parent / link).resolve() for page, link in links if not link.startswith("https://")}
    assert targets
    assert [target for target in targets if not target.is_file()] == []
    for name in ("index.html", "rejected_paraphrases.html"):
        assert Page(docs / name).fetched == []
        assert "url(http" not in (docs / name).read_text("utf-8").replace("'", "")
    page = (docs / "rejected_paraphrases.html").read_text("utf-8")
    sections = re.split(r"<h2 id=\"reason-\d+\">", page)
    short = next(section for section in sections if section.startswith("paraphrase_1_length</h2>"))
    assert [text for text in ("dog cat", "IMG_7 small dog", "pair pair1") if text not in short] == []
    assert "2 of 3 rows rejected" in page
    (suite,) = (docs / "validations" / "paraphrases_answers").rglob("*.html")
    for text in (page, suite.read_text("utf-8")):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "<script>alert" not in text
        assert "{{ 7*7 }}" in text


def test_a_sample_is_spread_and_reasons_are_few_and_added_up() -> None:
    assert sample_rows(7, most=7).tolist() == list(range(7))
    sample = sample_rows(100_000, most=1000)
    assert (len(sample), (np.diff(sample) > 0).all()) == (1000, True)
    tenths = np.bincount(sample // 10_000, minlength=10)
    assert 60 < tenths.min() <= tenths.max() < 140
    tally = Tally()
    for row in range(2 * MOST_REASONS):
        tally.add_rejected(RejectedRow(row, "pair", 0, {}, ("all", f"failed: {row}")))
    assert [example.row for example in tally.examples["all"]] == list(range(5))
    assert [example.row for example in tally.examples["failed: 7"]] == [7]
    assert len(tally.examples) == MOST_REASONS
    reasons = Counter({"failed: a?": 2, "failed: a!": 3, "x" * 500: 1})
    tally = Tally(rows=6, marked=Counter(accepted=0), reasons=reasons)
    shares = SuiteResult("shares", True, {}, [])
    metrics = TableReport("table", tally, shares, {}, pd.DataFrame(), [], []).metrics()
    assert metrics["validate/table/rejected/failed_ a_"] == 5
    assert max(map(len, metrics)) < 250


def test_counts_and_reports_are_in_the_run(track_in: Callable[[Path], None], tmp_path: Path) -> None:
    track_in(tmp_path)
    answers = [Answer(), Answer(pair=1, text_1="dog cat"), Answer(pair=2)]
    answers += [Answer(pair=3, text_1=None, found_2=False, reason_1="failed: HTTP 500: <oops> #\u00e9")]
    files = write_paraphrases(tmp_path, answers)
    validated(files, docs=True, run=validate.run_tracked, min_accepted_share=0.5)
    with pytest.raises(InputError, match=r"breaks validate\.min_accepted_share"):
        validated(files, docs=True, run=validate.run_tracked, min_accepted_share=0.9)
    client = make_client()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = {run.info.status: run for run in client.search_runs(experiments, "tags.stage = 'validate'")}
    assert runs.keys() == {"FINISHED", "FAILED"}
    wanted = {"rows": 4, "accepted": 2, "quarantined": 2, "accepted_share": 0.5, "rejected/paraphrase_1_length": 1}
    wanted |= {"rejected/paraphrase_1_rejected_failed_ HTTP 500_ _oops_ __": 1}
    for run, least in ((runs["FINISHED"], "0.5"), (runs["FAILED"], "0.9")):
        assert len(run.data.tags["input.captions.sha256"]) == 64
        assert run.data.params["min_accepted_share"] == least
        assert {name: run.data.metrics[f"validate/paraphrases/{name}"] for name in wanted} == wanted
        folders = [client.list_artifacts(run.info.run_id, folder) for folder in ("", "paraphrases")]
        artifacts = {entry.path.removeprefix("paraphrases/") for entries in folders for entry in entries}
        assert artifacts >= {"summary.json", "index.html", "rejected_paraphrases.html"}


def test_prompts_name_task_model_and_text_and_a_judged_table_its_judge(raw_params: dict[str, Any]) -> None:
    for judged, named in ((False, {"negate_semclip"}), (True, {"negate_semclip", "judge_negation"})):
        raw_params["validate"]["tables"]["negations"]["apply_judge"] = judged
        prompts = prompts_of(find_table("negations"), Settings.model_validate(raw_params))
        assert {prompt["task"] for prompt in prompts} == named
        assert all(all(prompt.values()) and "<caption>" in prompt["prompt"] for prompt in prompts)


RULES = [
    Rule("words", "length", 3.0, 30.0),
    Rule("order", "reserved_word", high=0.5),
    Rule("rejected_answer", "rejected"),
    Rule("leak", "leak"),
]


def frame_of(rows: int, first: int = 0) -> pd.DataFrame:
    """Rows of which a third are too short, a few are rejected with odd texts, and none leaks."""
    numbers = list(range(first, first + rows))
    odd = ['it\'s "odd"', "100% $HOME {x} :y", "\u2603\nline", "a;b"]
    return pd.DataFrame(
        {
            "row": numbers,
            "words": [None if row % 7 == 0 else float(row % 3 + 2) for row in numbers],
            "order": [row / (first + rows) for row in numbers],
            "rejected_answer": pd.Series([odd[row % 4] if row % 5 == 0 else None for row in numbers], dtype=object),
            "leak": pd.Series([None] * rows, dtype=object),
        }
    )


@pytest.fixture(scope="module")
def suites() -> Suites:
    return Suites()


def test_every_failing_row_is_found_with_its_reasons_and_shares_checked(suites: Suites) -> None:
    frame = frame_of(1000, first=5000)
    found = suites.check_rows("rows", frame, RULES)
    wanted: dict[int, list[str]] = {}
    for row in frame.to_dict("records"):
        reasons = ["length"] if row["words"] < 3 else []
        reasons += ["reserved_word"] if row["order"] > 0.5 else []
        reasons += [f"rejected:{row['rejected_answer']}"] if row["rejected_answer"] is not None else []
        wanted |= {row["row"]: reasons} if reasons else {}
    assert found.failures == wanted
    assert [entry["failing_rows"] for entry in found.expectations][2:] == [200, 0]
    assert not found.success
    for share, passes in ((0.5, True), (0.25, False)):
        frame = pd.DataFrame({"row": [0], "accepted": [share]})
        found = suites.check_shares("shares", frame, [Rule("accepted", "min_accepted_share", low=0.5)])
        assert (found.success, found.expectations[0]["observed"]) == (passes, share)
