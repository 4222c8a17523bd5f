"""Rankings; a table of results says the same on the terminal, in Markdown, HTML and CSV, also with hostile names."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.evaluation.benchmarks.project import find_benchmark
from components.evaluation.report.formats import to_csv, to_html, to_markdown
from components.evaluation.report.published.tables import ranking_tables
from components.evaluation.scoring import ranking
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.comparisons import letters_of
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import Cell, ResultRow, ResultTable, number
from components.evaluation.scoring.results import Folders, Report, read_scores, summarise
from components.evaluation.scoring.terminal import print_results
from components.registry.encoder_lookup import encoder_under_test

BENCHMARK = find_benchmark("paraphrased_retrieval")
METRIC = "paraphrased_retrieval/ao_at_10"


def _scored(encoder: str, values: np.ndarray) -> tuple[Report, Scores]:
    scores = Scores({METRIC: values})
    results = summarise(BENCHMARK, scores, 500, 0)
    return Report(encoder=encoder, protocol="", data_hash="", encoder_sha256=encoder, metrics=results), scores


def test_encoders_are_in_order_and_those_that_differ_share_no_letter() -> None:
    generator = np.random.default_rng(0)
    query = generator.random(400)
    means = {"worst": 0.0, "good": 0.3, "equally_good": 0.303, "best": 0.5}
    scored = [_scored(name, 0.1 * query + mean + 0.1 * generator.random(400)) for name, mean in means.items()]
    (found,) = ranking.rank(scored, [BENCHMARK], seed=0)
    assert (found.metric, found.queries) == (METRIC, 400)
    letters = [(place.encoder, place.groups) for place in found.encoders]
    assert letters == [
        ("best", "a"),
        *sorted([("equally_good", "b"), ("good", "b")], key=letters.index),
        ("worst", "c"),
    ]
    best, *others = found.encoders
    second = max(place.value for place in others)
    assert best.behind.low > 0
    assert best.behind.value == pytest.approx(best.value - second)
    for place in others:
        assert place.behind.low < place.behind.value < place.behind.high < 0
        assert place.behind.value == pytest.approx(place.value - best.value)
    # Two independent parts of a tenth's width; 2.6 standard errors hold for six pairs, and 0.84 are four of five.
    assert found.least == pytest.approx((2.6 + 0.84) * 0.1 * (2 / 12 / 400) ** 0.5, rel=0.1)


def test_few_queries_constant_values_and_equal_encoders_show_nothing() -> None:
    few = [_scored(name, np.array(values)) for name, values in (("one", [0.5]), ("two", [0.7]))]
    (found,) = ranking.rank(few, [BENCHMARK], seed=0)
    assert [place.groups for place in found.encoders] == ["a", "a"]
    (table,) = ranking_tables([found])
    assert table.title == f"{METRIC}, 1 queries show no difference: they are too few"
    assert [row.cells[1] for row in table.rows] == ["+20.0 [too few queries]", "-20.0 [too few queries]"]
    values = np.random.default_rng(0).random(200)
    scored = [_scored("same", values), _scored("again", values.copy()), _scored("lower", values - values.mean())]
    (found,) = ranking.rank(scored, [BENCHMARK], seed=0)
    first, second, _ = found.encoders
    for place in (first, second):
        assert place.behind.low < 0 < place.behind.high, "encoders that never differ have an interval with a length"
    with pytest.raises(InputError, match="at least two encoders"):
        ranking.rank(scored[:1], [BENCHMARK], seed=0)


@pytest.mark.parametrize(
    ("different", "letters"),
    [
        ((), {"w": "a", "x": "a", "y": "a", "z": "a"}),
        (("wz",), {"w": "a", "x": "ab", "y": "ab", "z": "b"}),
        (("wz", "wy", "xz"), {"w": "a", "x": "ab", "y": "bc", "z": "c"}),
        (("wx", "wy", "wz", "xy", "xz", "yz"), {"w": "a", "x": "b", "y": "c", "z": "d"}),
        # The second differs from both neighbours, and they do not differ from each other.
        (("wx", "xy"), {"w": "a", "x": "b", "y": "a", "z": "ab"}),
    ],
)
def test_letters_are_shared_by_pairs_that_do_not_differ(different: tuple[str, ...], letters: dict[str, str]) -> None:
    assert letters_of("wxyz", {(one, other) for one, other in different}) == letters


def test_encoders_are_scored_with_their_own_pictures_on_benchmarks_with_tables(
    folders: Folders, make_settings: Callable[..., Settings], tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings()
    benchmarks = ranking.chosen_benchmarks(["paraphrased_retrieval"], folders.evaluation)
    embedded = []
    monkeypatch.setattr(Encoder, "embed_images", lambda *_: embedded.append(1) or np.eye(4, 16, dtype=np.float32))
    first = encoder_under_test("first", tiny_encoder)
    second = replace(first, name="second", sha256="other texts")
    third = replace(first, name="third", image_tower_sha256="other pictures")
    scored = ranking.score_encoders([first, second, third], benchmarks, settings, folders)
    assert len(embedded) == 2, "encoders with the same image tower share its features"
    for report, scores in scored:
        assert read_scores(report, folders.reports / "rank").values.keys() == scores.values.keys()
    assert [len(one.encoders) for one in ranking.rank(scored, benchmarks, seed=0)] == [3] * len(
        benchmarks[0].key_metrics
    )
    for wrong, message in (
        (first, "two encoders are named 'first'"),
        (replace(first, image_tower_sha256=None), "no image"),
    ):
        with pytest.raises(InputError, match=message):
            ranking.score_encoders([first, wrong], benchmarks, settings, folders)
    for need in find_benchmark("swaps").needs:
        (folders.evaluation / need.path).unlink()
    names = [one.name for one in ranking.chosen_benchmarks([], folders.evaluation)]
    assert names == [name for name in ranking.BENCHMARKS if name != "swaps"]
    with pytest.raises(InputError, match="no benchmark table"):
        ranking.chosen_benchmarks([], folders.reports)


HOSTILE = "a\x1b[2J<b>|[red]x\nz"
WORSE = Cell(Interval(0.5, 0.4, 0.6), Interval(-0.1, -0.15, -0.05))
TABLE = ResultTable(
    "Title <i>",
    ("metric", HOSTILE, "difference", "p", "groups"),
    [
        ResultRow("bench/one", (number(0.712), WORSE.difference, number(0.00125, digits=4, scale=1), "ab"), "bench"),
        ResultRow("bench/two", (WORSE, None, None, HOSTILE), "bench", "partial data"),
    ],
    notes=("A note.",),
)


def test_the_terminal_shows_numbers_marks_and_control_characters_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(TABLE, TABLE)
    shown = capsys.readouterr().out
    lines = [" ".join(line.strip("│┃ ").split()) for line in shown.splitlines()]
    name = r"a\x1b[2J<b>|[red]x\nz"
    assert f"metric ┃ {name} ┃ difference ┃ p ┃ groups" in lines
    assert "one │ 71.2 │ -10.0 [-15.0, -5.0] ▼ │ 0.0013 │ ab" in lines
    assert f"two* │ 50.0 ±10.0 ▼ │ │ │ {name}" in lines
    assert "\x1b" not in shown
    assert lines.count("bench") == 2
    assert lines.count("A note.") == 1


def test_markdown_html_and_csv_show_names_as_they_are() -> None:
    lines = to_markdown([TABLE]).splitlines()
    name = "a\x1b[2J\\<b>\\|[red]x z"
    assert lines[:4] == [
        r"## Title \<i>",
        "",
        f"| metric | {name} | difference | p | groups |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    assert lines[4] == "| bench/one | 71.2 | -10.0 [-15.0, -5.0] ▼ | 0.0013 | ab |"
    assert lines[5] == f"| bench/two* | 50.0 ±10.0 (-10.0 [-15.0, -5.0] ▼) |  |  | {name} |"
    assert lines[-1] == "A note."
    assert to_markdown([ResultTable("", ("encoder", "top1"), [])]).splitlines()[2:4] == [
        "| encoder | top1 |",
        "| --- | ---: |",
    ]
    page = to_html([TABLE])
    assert "<td>71.2</td>" in page
    assert '<td class="delta worse">-10.0<i>▼</i> <small>[-15.0, -5.0]</small></td>' in page
    assert '<td class="delta worse">50.0 ±10.0<br><small>-10.0 ▼</small></td>' in page
    assert '<th scope="row" title="bench/two">two*</th>' in page
    assert "<b>" not in page
    assert "http:" not in page.replace("https:", "http:")
    assert "<i>" not in page.replace("<i>▼</i>", "")
    rows = list(csv.DictReader(io.StringIO(to_csv([TABLE]))))
    assert [(row["encoder"], row["source"], row["column"], row["value"], row["half_width"]) for row in rows] == [
        ("bench/one", "measured", HOSTILE, "71.2000", ""),
        ("bench/one", "measured", "difference", "-10.0000", "5.0000"),
        ("bench/one", "measured", "p", "0.0013", ""),
        ("bench/two", "partial data", HOSTILE, "50.0000", "10.0000"),
    ]
