"""A table of results says the same on the terminal, in Markdown, HTML and CSV, also with names that would break one."""

from __future__ import annotations

import csv
import io

import pytest

from components.evaluation.report.formats import to_csv, to_html, to_markdown
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import Cell, ResultRow, ResultTable, number
from components.evaluation.scoring.terminal import print_results

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
