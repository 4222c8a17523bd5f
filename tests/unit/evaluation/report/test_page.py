"""The page's gallery, pictures and origin; plots and the terminal's table: drawn values, notes on missing ones."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from components.core.settings import Compare, Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tables.records import PAIRS
from components.evaluation.benchmarks.project.rankings import PARAPHRASE_TOP, QUERY_TOP
from components.evaluation.report import compare
from components.evaluation.report.comparison import Comparison, print_comparison
from components.evaluation.report.gallery import (
    Lists,
    Retrieved,
    data_uri,
    examples,
    place_name,
    read_pictures,
    read_retrieved,
    spread,
)
from components.evaluation.report.plots import COLOURS, bars, frontier, marker_style, pareto_plot
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import Cell
from components.evaluation.scoring.results import Folders, Report
from tests.support.shard_making import encoded

QUERIES = [{"query": f"q{row}", "paraphrase": f"p{row}", "tier": "rare"} for row in range(2)]
BASE = Lists("base", np.array([[0, 1, 2], [3, 4, 5]]), np.array([[5, 1, 0], [3, 4, 5]]))
TUNED = Lists("tuned", np.array([[0, 1, 2], [3, 4, 5]]), np.array([[0, 1, 2], [9, 8, 7]]))
BOTH = Retrieved([BASE, TUNED], QUERIES, [0, 3])
NO_IMAGE: dict[str, list[object]] = {
    "id": ["a"], "image_id": ["a"], "image": [b"none"], "caption": ["a"], "facts": [None]
}  # fmt: skip


def test_examples_are_spread_and_show_the_first_images_with_gains_by_the_full_lists() -> None:
    found = examples(BOTH, "tuned", Compare(gallery_queries=2, gallery_top=2))
    assert (found[0].texts, found[0].gold_row) == (QUERIES[0], 0)
    assert [[*side.query, *side.paraphrase] for side, _ in found[0].sides] == [[0, 1, 5, 1], [0, 1, 0, 1]]
    # Base's lists for the first query share 0, 1 and 2 images at depths 1, 2 and 3.
    expected = (0 / 1 + 1 / 2 + 2 / 3) / 3
    assert [example.gain for example in found] == pytest.approx([1 - expected, -1])
    assert [example.place for example in found] == ["largest gain of 2 queries", "largest loss of 2 queries"]
    assert [spread(5, 2), spread(5, 3), spread(4, 99)] == [[0, 4], [0, 2, 4], [0, 1, 2, 3]]
    assert spread(1000, 4) == [0, 499, 666, 999]
    names = [place_name(place, 1000) for place in (0, 333, 499, 999)]
    assert names == [f"{name} of 1,000 queries" for name in ("largest gain", "number 334", "median", "largest loss")]


def test_images_are_kept_or_small_jpegs_and_of_an_embedding_the_caption_is_drawn(tmp_path: Path) -> None:
    image = encoded(Image.new("RGB", (64, 64), "red"))
    assert data_uri(image) == f"data:image/png;base64,{base64.b64encode(image).decode()}"
    for size, kind, small in (((400, 200), "PNG", (128, 64)), ((20, 20), "BMP", (20, 20))):
        head, body = data_uri(encoded(Image.new("RGB", size, "red"), kind)).split(",", 1)
        assert head == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(body))) as opened:
            assert opened.size == small
    PAIRS.write(tmp_path / "test.parquet", NO_IMAGE)
    with pytest.raises(InputError, match=r"test.parquet: row 0 is not an image"):
        read_pictures(tmp_path / "test.parquet", [0])
    columns = {"id": ["a"], "image_id": ["x"], "caption": ['a <b> & "c" of many more words than one line holds']}
    PAIRS.write(tmp_path / "test.parquet", {**columns, "file": ["img_emb_0.npy"], "position": [3]})
    source, description = read_pictures(tmp_path / "test.parquet", [0])[0]
    kind, _, drawn = unquote(source).partition(",")
    assert kind == "data:image/svg+xml"
    texts = [node.text for node in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}tspan")]
    assert " ".join(map(str, texts)) == description == columns["caption"][0]


def test_the_origin_is_named_and_rankings_that_do_not_fit_the_tables_are_refused(
    folders: Folders, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "git_commit", lambda: "abc-dirty")
    report = Report(encoder="e", protocol="retrieval=1 swaps=2", data_hash="d", encoder_sha256="s", metrics={})
    origin = compare.trace_origin(make_settings(), report, folders)
    assert (origin["commit"], origin["data_hash"]) == ("abc-dirty", "d")
    assert origin["protocols"] == {"retrieval": "1", "swaps": "2"}
    assert origin["data"][str(folders.test_pairs)] == file_hash(folders.test_pairs)
    # Pairs, paraphrase queries, caption queries, labels, swaps and caption ratings.
    assert len(origin["data"]) == 6
    assert origin["packages"]["torch"][0].isdigit()
    assert "metric: paraphrased_retrieval/ao_at_2" in origin["params"]
    stored = {"base": {QUERY_TOP: BASE.query, PARAPHRASE_TOP: BASE.paraphrase}}
    with pytest.raises(InputError, match="'base' was evaluated on other queries"):
        read_retrieved(stored, folders)
    three = np.zeros((3, 1), dtype=np.int64)
    PAIRS.write(folders.test_pairs, NO_IMAGE)
    with pytest.raises(InputError, match=r"paraphrase_queries.parquet names image 'c', which is not in .*test.parquet"):
        read_retrieved({"base": {QUERY_TOP: three, PARAPHRASE_TOP: three}}, folders)


def test_secrets_are_not_shown() -> None:
    for secret, shown in (
        ({"store": "postgresql://me:hidden@host/db"}, {"store": "postgresql://***@host/db"}),
        ({"models": [{"api_key": "hidden", "max_tokens": 4}]}, {"models": [{"api_key": "***", "max_tokens": 4}]}),
        ({"token": "", "tokenizer": "clip-bpe"}, {"token": "", "tokenizer": "clip-bpe"}),
    ):
        assert compare.without_secrets(secret) == shown


PRIMARY = "paraphrased_retrieval/ao_at_10"
VALUES: dict[str, Sequence[float]] = {PRIMARY: (0.2, 0.6, 0.4), "zero_shot/top1": (0.7, 0.5, 0.6)}
METRICS = [f"benchmark/metric_at_{depth}" for depth in (1, 5, 10, 20, 50)]


def _comparison(values: Mapping[str, Sequence[float]] = VALUES, names: Sequence[str] = "abc") -> Comparison:
    def cell(name: str, value: float) -> Cell:
        delta = None if name == names[0] else Interval(0.1, 0.05, 0.15)
        return Cell(Interval(value, value - 0.02, value + 0.02), delta, higher_is_better=True)

    rows = {metric: dict(zip(names, found, strict=True)) for metric, found in values.items()}
    return Comparison(
        tuple(names), {metric: {name: cell(name, value) for name, value in row.items()} for metric, row in rows.items()}
    )


def _many(count: int) -> Comparison:
    """Each value names its encoder and metric: encoder 3 has 30.1 at metric 1."""
    names = ["base", *(f"encoder_{number}" for number in range(1, count))]
    numbers = range(count)
    return _comparison({name: [n / 10 + place / 1000 for n in numbers] for place, name in enumerate(METRICS, 1)}, names)


def test_no_value_is_cut_on_a_narrow_terminal_and_few_or_wide_ones_show_differences_side_by_side(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(count: int, width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        print_comparison(_many(count), METRICS[0], METRICS)
        return capsys.readouterr().out

    for width in (80, 120):
        narrow = shown(9, width)
        assert "…" not in narrow
        assert max(map(len, narrow.splitlines())) <= width
        rows = [line for line in narrow.splitlines() if "encoder_3" in line]
        values = [value for row in rows for value in re.findall(r"(\d+\.\d) ±2\.0 ▲", row)]
        assert values == ["30.1", "30.2", "30.3", "30.4", "30.5"]
    assert all("+10.0 [+5.0, +15.0] ▲" in shown(count, width) for count, width in ((2, 80), (9, 500)))


def test_encoders_differ_in_colour_or_have_labels() -> None:
    coloured, labelled = (bars(_many(len(COLOURS) + more), METRICS, METRICS).data for more in (1, 2))
    assert len({trace.marker.color for trace in coloured}) == len(COLOURS) + 1
    assert all(list(trace.y) == METRICS for trace in coloured)
    assert [list(part) for part in labelled[3].y] == [METRICS, ["encoder_3"] * len(METRICS)]
    assert labelled[0].marker.color != labelled[1].marker.color == labelled[6].marker.color
    assert len({marker_style(number) for number in range(31)}) == 31


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_frontier_dominates_all_others_and_not_itself(raw: list[tuple[int, int]]) -> None:
    points = np.array(raw, dtype=np.float64)
    kept = frontier(points)

    def dominates(a: int, b: int) -> bool:
        return bool((points[a] >= points[b]).all() and (points[a] > points[b]).any())

    assert not any(dominates(a, b) for a in kept for b in kept)
    assert all(any(dominates(a, b) for a in kept) for b in range(len(points)) if b not in kept)


def test_the_pareto_plot_fills_the_frontier_and_tells_many_points_apart() -> None:
    plot = pareto_plot(_comparison(), PRIMARY)
    line, *points = plot.figure.data
    assert list(line.x) == pytest.approx([50, 60, 70])
    assert [point.name for point in points] == ["a", "b", "c"]
    drawn = [number for point in points for number in (point.x[0], point.y[0])]
    assert drawn == pytest.approx([70, 20, 50, 60, 60, 40])
    plot = pareto_plot(_comparison(VALUES | {"zero_shot/top1": (0.7, 0.8, 0.6)}), PRIMARY)
    assert [point.marker.symbol.endswith("-open") for point in plot.figure.data[1:]] == [True, False, True]
    assert plot.notes[0].endswith("(b).")
    values = {metric: [number / 20 for number in range(18)] for metric in VALUES}
    plot = pareto_plot(_comparison(values, [f"e{number}" for number in range(18)]), PRIMARY)
    markers = {(point.marker.color, point.marker.symbol.removesuffix("-open")) for point in plot.figure.data[1:]}
    assert len(markers) == 18
    plot = pareto_plot(_comparison({PRIMARY: (0.1, 0.2, 0.3)}), PRIMARY)
    assert (plot.figure, plot.notes) == (None, ("zero_shot/top1 was not measured.",))
