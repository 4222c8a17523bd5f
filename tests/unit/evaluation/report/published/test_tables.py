"""Tables of published benchmarks: our values beside the papers' own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from components.core.system.errors import InputError
from components.evaluation.benchmarks.published import published_benchmarks
from components.evaluation.report.published.paper_tables import Collection, Column, collection_names, find_collection
from components.evaluation.report.published.tables import metric_tables, paired_tables, paper_tables
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.result_table import ResultTable
from components.evaluation.scoring.results import PublishedReport, Result, write_results


def _report(encoder: str, benchmark: str, partial: tuple[str, ...] = (), **metrics: float) -> PublishedReport:
    found = {
        f"{benchmark}/{name.replace('__', '/')}": Result(
            value=value, ci95=(value - 0.01, value + 0.01), higher_is_better=True, queries=5
        )
        for name, value in metrics.items()
    }
    return PublishedReport(
        encoder=encoder, encoder_sha256="x", benchmark=benchmark, version=1, protocol="p", data_hash="d",
        partial=partial, seconds=1.0, metrics=found,
    )  # fmt: skip


def _texts(table: ResultTable) -> list[list[str]]:
    return [[cell if isinstance(cell, str) else cell.text if cell else "" for cell in row.cells] for row in table.rows]


COLUMNS = [
    {"name": "AO", "metric": "coco_p/ao_at_10"}, {"name": "STS", "mean_of": ["sts12/all", "sts13/all"], "decimals": 2}
]  # fmt: skip
TABLE = {"title": "Table 1", "columns": COLUMNS, "rows": {"CLIP": [67.2, 65.1], "Other": [None, 1.0]}}
COLLECTION = Collection.model_validate({"paper": "Paper", "tables": [TABLE]})
REPORTS = [
    _report("base", "coco_p", ao_at_10=0.5, tier__ao_at_10=0.4),
    _report("base", "sts12", partial=("few rows",), all=0.12346),
    _report("base", "sts13", all=0.2),
    _report("<b>", "coco_p", ao_at_10=0.6),
    _report("none", "zero_shot", top1=0.1),
]


def test_columns_are_means_of_rounded_parts_or_correlations() -> None:
    column = COLLECTION.tables[0].columns[1]
    assert column.value({"sts12/all": 0.12346, "sts13/all": 0.2}) == pytest.approx((12.35 + 20.0) / 2)
    assert column.value({"sts12/all": 0.1}) is None
    # Margins 1, 2, 3 and gains 3, 1, 2: r = -1/2; the row of section 4.3 is over PC-CLIP's five sets.
    column = Column(name="r", scale=1, correlation=tuple((f"{one}/m", f"{one}/with", f"{one}/plain") for one in "abc"))
    found = {"a/m": 1, "b/m": 2, "c/m": 3, "a/with": 4, "b/with": 2, "c/with": 3} | dict.fromkeys(
        ("a/plain", "b/plain", "c/plain"), 1
    )
    assert column.value(found) == pytest.approx(-0.5)
    assert column.value(dict(list(found.items())[1:])) is None
    (own,) = (one for one in find_collection("pc-clip").tables if one.title.startswith("Section 4.3"))
    assert len(own.columns[0].correlation) == 5


def test_a_papers_table_has_our_rows_its_own_and_its_decimals() -> None:
    (section,) = paper_tables(COLLECTION, REPORTS)
    assert [row.label for row in section.rows] == ["base*", "<b>", "CLIP (paper)", "Other (paper)"]
    assert _texts(section) == [["50.0", "16.2"], ["60.0", ""], ["67.2", "65.1"], ["", "1.0"]]
    notes = ["Shares times 100.", "(paper): value", "*: the data was not as published"]
    assert [note.startswith(start) for note, start in zip(section.notes, notes, strict=True)] == [True] * 3
    assert [row.source for row in section.rows] == ["partial data", "measured", "paper", "paper"]
    columns = [{"name": "ours", "metric": "coco_p/ao_at_10"}, {"name": "not scored", "metric": "coco_p/none"}]
    table = TABLE | {"columns": columns, "rows": {"CLIP": [98.52, 9.0], "Other": [98.5, None]}}
    (section,) = paper_tables(Collection.model_validate({"paper": "p", "tables": [table]}), REPORTS[:1])
    assert _texts(section) == [["50.00", ""], ["98.52", "9.00"], ["98.5", ""]]
    by_title = {section.title: section for section in paper_tables(find_collection("pc-clip"), [])}
    printed = {
        "Table 16": ("PC-CLIP", ["90.67", "88.42", "89.00", "98.55", "84.73", "70.40", "92.00"]),
        "Table 7": ("CLIP", ["1.04", "0.96", "1.19", "0.81", "0.92", "1.08", "1.08", "0.92", "1.06", "0.94"]),
        "Section 4.3": ("encoder not named", ["-0.883"]),
        "Table 5": ("PC-CLIP", ["2.33"]),
        "Table 12": ("CLIP4IDC with PC-CLIP", ["3.6", "5.2", "", ""]),
        "Table 13": ("CLIP4IDC with PC-CLIP", ["10.96", "12.82", "43.09", "33.24"]),
    }
    for place, (row, figures) in printed.items():
        (found,) = (section for title, section in by_title.items() if f", {place}:" in title)
        shown = dict(zip([one.name for one in found.rows], _texts(found), strict=True))
        assert shown[row] == figures, place


def test_metrics_by_benchmark_with_intervals_and_groups_on_demand() -> None:
    sections = metric_tables(REPORTS)
    assert [section.title.split(",")[0] for section in sections] == ["coco_p", "sts12", "sts13", "zero_shot"]
    assert sections[0].columns == ("encoder", "ao_at_10")
    assert _texts(sections[0])[0] == ["50.0 ±1.0"]
    assert metric_tables(REPORTS, groups=True)[0].columns == ("encoder", "ao_at_10", "tier/ao_at_10")
    # Other weights of one name, such as after training again, have rows of their own.
    again = [*REPORTS[:2], REPORTS[2].model_copy(update={"encoder_sha256": "1234567890"})]
    (section,) = paper_tables(COLLECTION, again)
    assert [row.name for row in section.rows if row.source != "paper"] == ["base x"]
    assert [row.name for one in metric_tables(again) for row in one.rows] == ["base x", "base x", "base 12345678"]


def test_metrics_with_values_per_query_are_compared(tmp_path: Path) -> None:
    for scored, groups, compared in (
        (["t2i/recall_at_1"], False, ["t2i/recall_at_1"]),
        (["t2i/recall_at_1", "all"], False, ["all"]),
        (["t2i/recall_at_1", "all"], True, ["t2i/recall_at_1", "all"]),
    ):
        reports = []
        for encoder, value in (("base", 0.0), ("tuned", 1.0)):
            # A sum has no values per query.
            report = _report(encoder, "coco", rsum=value, **{name.replace("/", "__"): value for name in scored})
            write_results(report, Scores({f"coco/{name}": np.full(50, value) for name in scored}), tmp_path)
            reports.append(report)
        (table,) = paired_tables(reports, "base", tmp_path, groups=groups)
        assert table.columns == ("metric", "tuned", "base", "difference", "p")
        assert [row.name for row in table.rows] == [f"coco/{name}" for name in compared]
        assert {tuple(texts[:3]) for texts in _texts(table)} == {("100.0", "0.0", "+100.0 [+88.4, +100.0] ▲")}


def test_every_column_is_a_declared_metric_and_vtab_the_mean_of_35() -> None:
    benchmarks = published_benchmarks()
    assert collection_names() == ["adapting", "paraclip", "pc-clip", "semclip"]
    for table in (table for name in collection_names() for table in find_collection(name).tables):
        for metric in (metric for column in table.columns for metric in column.metrics):
            assert benchmarks[metric.split("/", 1)[0]].metric(metric).higher_is_better is not None, metric
    with pytest.raises(InputError, match="collection 'paracilp' is unknown: did you mean 'paraclip'"):
        find_collection("paracilp")
    with pytest.raises(ValidationError, match="needs one of"):
        Column(name="x")
    (first, *_, last) = find_collection("adapting").tables
    column = next(column for column in first.columns if column.name.startswith("VTAB+"))
    assert len(set(column.metrics)) == 35
    values = {metric: number / 100 for number, metric in enumerate(column.metrics)}
    assert column.value(values) == pytest.approx(17)
    assert column.value(dict(list(values.items())[1:])) is None
    # Table B.6 prints the 35 values and their average, which it has a tenth too low.
    assert last.columns[-1].metrics == tuple(one.metric for one in last.columns[:-1])
    for figures in last.rows.values():
        printed = [figure for figure in figures if figure is not None]
        assert sum(printed[:35]) / 35 == pytest.approx(printed[35], abs=0.15)
