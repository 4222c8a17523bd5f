"""The comparison of evaluated encoders, and its files."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from components.cli.commands.explore import PORT
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import write_json
from components.core.tracking import make_client
from components.encoders.adapter.encoder import Encoder
from components.evaluation.report import compare
from components.evaluation.report.comparison import Comparison, headline, read_csv, show
from components.evaluation.report.comparison import compare as compared
from components.evaluation.report.plots import Plot
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.intervals import Interval, mean_interval
from components.evaluation.scoring.result_table import Cell
from components.evaluation.scoring.results import Folders, Report, Result, read_report, read_scores, write_results

Make = Callable[..., Settings]
PRIMARY = "paraphrased_retrieval/ao_at_2"


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", "", html, flags=re.DOTALL)
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture
def evaluated(
    stub: Any, vectors: Any, folders: Folders, make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> Folders:
    """Two encoders with results; `tuned` gives every paraphrase the vector of its query."""
    tuned = vectors | {f"{image} paraphrase": vectors[f"{image} query"] for image in "acd"}
    for name, known in (("base", vectors), ("tuned", tuned)):
        encoder = stub(known, name)
        monkeypatch.setattr(Encoder, "load", staticmethod(lambda _folder, encoder=encoder: encoder))
        evaluate.run(make_settings(), name, folders)
        write_json(folders.models / name / "encoder.json", encoder.sidecar.model_dump())
    return folders


def _reports(base: float, tuned: float, higher_is_better: bool = True) -> list[Report]:
    facts = {"protocol": "p", "data_hash": "d", "encoder_sha256": "e"}
    results = {"base": base, "tuned": tuned}
    found = {name: Result(value=value, higher_is_better=higher_is_better) for name, value in results.items()}
    return [Report(encoder=name, metrics={"m": result}, **facts) for name, result in found.items()]


def test_differences_are_paired_and_in_the_files_of_a_comparison(
    evaluated: Folders, make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = compare.run(make_settings(), evaluated)
    cell = comparison.cells[PRIMARY]["tuned"]
    assert cell.value.value == pytest.approx(1)
    assert cell.delta == mean_interval(np.array([0.5, 0.75, 0.0]))
    assert comparison.cells[PRIMARY]["base"].delta is None
    assert "no other" not in headline(compare.run(make_settings(compare_encoders=["base"]), evaluated), PRIMARY)
    comparison = compare.run(make_settings(), evaluated)
    assert read_csv(evaluated.csv) == comparison
    markdown = (evaluated.reports / "comparison.md").read_text("utf-8")
    assert f"tuned is ahead of base on {PRIMARY} by 41.7 points (too few queries for an interval)" in markdown
    assert "| paraphrased_retrieval/tier_common/ao_at_2 | 75.0" in markdown
    html = (evaluated.reports / "comparison.html").read_text("utf-8")
    _check_page(html)
    assert [text in html for text in ("caption &lt;a&gt;", r"caption \u003ca\u003e", "caption <a>")] == [1, 1, 0]
    show(comparison, PRIMARY, [PRIMARY])
    plain = capsys.readouterr().out
    show(comparison, PRIMARY, [PRIMARY], groups=True)
    assert "tier_unseen" not in plain
    assert "tier_unseen" in capsys.readouterr().out
    assert "+41.7 [too few queries]" in plain


def test_differences_resample_pictures_and_need_values_per_query() -> None:
    """Ten queries about each of eight pictures are eight observations: gains on five of them are not significant."""
    pictures = np.repeat(np.arange(8), 10)
    gained = np.where(pictures < 5, 1.0, -1.0)
    found = [Scores({"m": values}, pictures={"m": pictures}) for values in (np.zeros(80), gained)]
    reports = _reports(0.0, float(gained.mean()))
    cell = compared(reports, found, resamples=1000, seed=0).cells["m"]["tuned"]
    assert cell.delta == mean_interval(gained, pictures=pictures)
    assert cell.verdict == ""
    unrelated = [Scores(scores.values) for scores in found]
    assert compared(reports, unrelated, resamples=1000, seed=0).cells["m"]["tuned"].verdict == "better"
    comparison = compared(_reports(0.5, 0.2, higher_is_better=False), [Scores({}), Scores({})], 10, 0)
    cells = comparison.cells["m"]
    assert [(cell.value.value, cell.delta) for cell in cells.values()] == [(0.5, None), (0.2, None)]
    assert headline(comparison, "m").startswith("tuned is best on m with 20.0")


def _check_page(html: str) -> None:
    """It is complete and needs no network."""
    page, sources = Page(html), json.loads(re.findall(r'<script[^>]*id="pictures"[^>]*>(.*?)</script>', html)[0])
    pictures = page.all("img")
    # Three queries: the described image and two encoders with two lists of two.
    assert len(pictures) == 3 * (1 + 2 * 2 * 2)
    assert all(picture["alt"] and sources[str(picture["data-picture"])] for picture in pictures)
    classes = [(picture["class"] or "").split() for picture in pictures]
    # Tuned finds the same two for A and B: 3 x 4 marked. Base shares two, one and two images: 2 x (2 + 1 + 2) marked.
    assert sum("shared" in names for names in classes) == 12 + 10
    # Once per query, and in every list: all lists of this world have the described image among their two.
    assert sum("gold" in names for names in classes) == 3 + 12
    assert all(src.startswith("data:image/") and alt for src, alt in sources.values())
    # Results, their groups, protocol, encoders; data, protocol versions, packages.
    assert len(page.all("table")) == 4 + 3
    plots = [block["id"] for block in page.all("div") if "plotly-graph-div" in (block.get("class") or "")]
    assert plots == ["plot-pareto", "plot-metrics", "plot-groups"]
    assert "tuned is ahead of base" in page.text
    for word in ("ao_at_2", "relation_macro_accuracy", "tier_unseen", "weights of", "c" * 12):
        assert word in page.text
    loaded = [block.get("src") or block.get("href") or "" for kind, block in page.found if kind != "a"]
    assert not [address for address in loaded if address and not address.startswith(("data:", "#"))]
    links = [block.get("href") or "" for block in page.all("a")]
    # The default address of `cliptune explore`.
    assert all(address.startswith(("#", f"http://127.0.0.1:{PORT}/?q=")) for address in links)
    assert f"http://127.0.0.1:{PORT}/?q=c+query&p=c+paraphrase&k=2&is.split=test" in links
    assert not page.all("link")


def test_without_rankings_there_is_no_gallery(
    evaluated: Folders, make_settings: Make, stub: Any, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate_only = {"benchmarks": ["swaps"], "top_k": [1], "bootstrap": 20}
    settings = make_settings(compare_encoders=["base"], evaluate=evaluate_only)
    monkeypatch.setattr(Encoder, "load", staticmethod(lambda _folder: stub(vectors)))
    evaluate.run(settings, "base", evaluated)
    compare.run(settings, evaluated)
    page = Page((evaluated.reports / "comparison.html").read_text("utf-8"))
    assert not page.all("img")
    assert f"{PRIMARY} was not measured" in page.text


def test_no_origin_is_compared_and_other_data_refused(evaluated: Folders, make_settings: Make, stub: Any) -> None:
    path = evaluated.models / "tuned" / "encoder.json"
    newer = stub({}, "tuned").sidecar.model_copy(update={"weights_sha256": "newer"})
    for replace in (path.unlink, lambda: write_json(path, newer.model_dump())):
        replace()
        assert compare.run(make_settings(), evaluated).encoders == ("base", "tuned")
        page = Page((evaluated.reports / "comparison.html").read_text("utf-8")).text
        assert "Not known for tuned" in page
        assert "Settings and data of base" in page
        assert "Settings and data of tuned" not in page
    with pytest.raises(InputError, match=r"compare.gallery_top exceeds the largest of evaluate.top_k"):
        compare.run(make_settings(compare={"gallery_queries": 1, "gallery_top": 3}), evaluated)
    report = read_report("tuned", evaluated.metrics)
    changed = report.model_copy(update={"data_hash": "other"})
    write_results(changed, read_scores(report, evaluated.per_query), evaluated.metrics, evaluated.per_query)
    with pytest.raises(InputError, match="'base' and 'tuned' were evaluated on different data"):
        compare.run(make_settings(), evaluated)
    with pytest.raises(InputError, match="compare_encoders has 'base' twice"):
        compare.run(make_settings(compare_encoders=["base", "base"]), evaluated)


def test_a_missing_table_of_results_names_the_fix(folders: Folders) -> None:
    with pytest.raises(InputError, match=r"comparison.csv is missing: run `dvc repro compare`"):
        read_csv(folders.csv)
    folders.csv.parent.mkdir()
    folders.csv.write_text("metric,value\nx,1\n")
    with pytest.raises(InputError, match=r"comparison.csv is damaged"):
        read_csv(folders.csv)


def test_verdicts_and_headlines() -> None:
    above, below, around = Interval(0.1, 0.05, 0.15), Interval(-0.1, -0.15, -0.05), Interval(0.1, -0.05, 0.25)
    for delta, if_higher, if_lower in ((above, "better", "worse"), (below, "worse", "better"), (around, "", "")):
        verdicts = [Cell(Interval(0.5, 0.4, 0.6), delta, higher).verdict for higher in (True, False)]
        assert verdicts == [if_higher, if_lower]
    base = Cell(Interval(0.5, 0.4, 0.6), None, True)
    for value, delta, sentence in (
        (
            0.6,
            above,
            "tuned beats base on m by 10.0 points (95% interval +5.0 to +15.0): 60.0 against 50.0.\n"
            "The test set shows differences from 7.1 points on (power 80%).",
        ),
        (0.6, around, "tuned is ahead of base on m by 10.0 points (95% interval -5.0 to +25.0), which could be chance"),
        (0.5002, Interval(0.0002, -0.05, 0.05), "tuned and base are equal on m (95% interval -5.0 to +5.0): 50.0."),
        (0.4, below, "base is best on m with 50.0 ±10.0: no other encoder exceeds it."),
    ):
        tuned = Cell(Interval(value, value - 0.1, value + 0.1), delta, True)
        found = headline(Comparison(("base", "tuned"), {"m": {"base": base, "tuned": tuned}}), "m")
        assert found.startswith(sentence)
    endless = Interval(0.1, -math.inf, math.inf)
    cells = {"base": Cell(Interval(0.0, -math.inf, math.inf)), "tuned": Cell(endless, endless)}
    found = headline(Comparison(("base", "tuned"), {"m": cells}), "m")
    assert found.endswith("by 10.0 points (too few queries for an interval), which could be chance: 10.0 against 0.0.")


def _log(settings: Settings, folder: Path) -> str | None:
    folders = Folders(reports=folder)
    for path in (folders.csv, folder / "comparison.md", folder / "comparison.html", folders.metrics / "base.json"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.name)
    base, tuned = Interval(0.25, 0.2, 0.3), Interval(0.5, 0.4, 0.6)
    cells = {"retrieval/top": {"base": Cell(base), "paraclip": Cell(tuned, Interval(0.25, 0.1, 0.4))}}
    plots = [Plot("radar", "", go.Figure(go.Bar(x=[1], y=[2]))), Plot("pareto", "", None)]
    compared = Comparison(("base", "paraclip"), cells)
    return compare.log_comparison(settings, compared, plots, {"base": "", "paraclip": "f" * 32}, folders)


def test_a_comparison_is_a_run_and_an_unreachable_mlflow_is_no_error(
    settings: Settings,
    tmp_path: Path,
    track_in: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    track_in(tmp_path)
    run_id = _log(settings, tmp_path)
    client = make_client()
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert client.get_experiment(run.info.experiment_id).name == settings.dataset.name
    assert (run.data.tags["stage"], run.data.tags["trained_by.paraclip"]) == ("compare", "f" * 32)
    assert "trained_by.base" not in run.data.tags
    assert run.data.params["promote.metric"] == settings.promote.metric
    names = {entry.path for entry in client.list_artifacts(run_id)}
    assert names == {"comparison.csv", "comparison.html", "comparison.json", "comparison.md", "encoders.json", "plots"}
    table = client.load_table(run.info.experiment_id, "encoders.json", [run_id])
    assert table.iloc[:, :2].to_numpy().tolist() == [["base", 0.25], ["paraclip", 0.5]]
    page = Path(client.download_artifacts(run_id, "plots/radar.html")).read_text("utf-8")
    assert "<script src=" not in page
    track_in(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hidden@127.0.0.1:9")
    assert _log(settings, tmp_path) is None
    assert capsys.readouterr().out.splitlines() == [
        "MLflow has no record of this comparison (MlflowException); the report is complete on disk"
    ]
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
