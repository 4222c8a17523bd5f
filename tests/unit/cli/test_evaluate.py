"""`cliptune evaluate` and `cliptune table` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from components.cli import app
from components.cli.evaluate import _show as show_outcomes
from components.encoders.adapter.encoder import Encoder
from components.evaluation.published import BenchmarkRun
from components.evaluation.results import PublishedReport, Result, read_published
from components.test_sets.readers.sugar_crepe import SUBSETS

ROW = {"id": 0, "filename": "a.png", "caption": "a dog", "caption2": "one dog", "negative_caption": "two red cats"}
NAME = "sugar_crepe_pp_text"


@pytest.fixture
def data(tmp_path: Path, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"name": name})
        tiny_encoder.save(Path("models") / name)
    folder = tmp_path / "benchmarks" / "sugar_crepe_pp"
    folder.mkdir(parents=True)
    for subset in SUBSETS:
        (folder / f"{subset}.json").write_text(json.dumps([ROW] * 3))
    return tmp_path / "benchmarks"


def _run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def test_scored_then_kept_then_in_every_table(data: Path) -> None:
    common = ("evaluate", "--benchmark", NAME, "--data-dir", str(data), "--allow-partial")
    code, shown = _run(*common, "--encoder", "mine", "--dry-run")
    assert code == 0
    assert f"{NAME}: would be scored" in shown
    code, shown = _run(*common, "--encoder", "mine", "--encoder", "models/other")
    assert code == 0
    assert shown.count(f"{NAME}, scored, partial data") == 2
    (outcome,) = json.loads(_run(*common, "--encoder", "mine", "--json")[1])["mine"]
    assert outcome["state"] == "kept"
    assert all(0 <= metric["value"] <= 1 for metric in outcome["report"]["metrics"].values())
    assert "not as published: swap_obj.json: 3 found, 245 published" in shown
    assert f"{NAME}, kept, partial data" in _run(*common, "--encoder", "mine")[1]
    code, shown = _run("table", "--groups")
    assert code == 0
    assert "| mine* |" in shown
    assert "swap_obj/tot" in shown
    code, shown = _run("table", "--collection", "paraclip", "--format", "html", "--output", "table.html")
    assert (code, shown) == (0, "wrote table.html\n")
    assert "OpenAI&#39;s CLIP (400M) (paper)" in Path("table.html").read_text()
    code, shown = _run("table", "--plot", f"{NAME}/swap_obj/tot", "--output", "bars.html")
    assert (code, shown) == (0, "wrote bars.html\n")
    code, shown = _run("table", "--baseline", "other", "--format", "csv")
    assert code == 0
    assert shown.startswith("table,encoder,source,column,value,half_width")


def test_two_encoders_of_one_name_do_not_overwrite_each_other(data: Path) -> None:
    other = Encoder.load(Path("models/other"))
    with torch.no_grad():
        next(other.model.parameters()).add_(1)
    other.save(Path("elsewhere/mine"))
    common = ("evaluate", "--benchmark", NAME, "--data-dir", str(data), "--allow-partial")
    for encoder in ("mine", "elsewhere/mine", "mine"):
        assert _run(*common, "--encoder", encoder)[0] == 0
    named = {f"mine {path.parent.name}" for path in Path("reports/published").glob(f"mine/*/{NAME}.json")}
    assert len(named) == 2
    shown = _run("table")[1]
    assert all(f"| {name}* |" in shown for name in named)
    first, second = sorted(named)
    assert f"## {second} against {first}, same queries" in _run("table", "--baseline", first)[1]
    code, shown = _run("table", "--baseline", "mine")
    assert code == 1
    assert f"--baseline 'mine' has no results: choose one of '{first}', '{second}'" in shown


def _result(encoder: str) -> Path:
    (path,) = Path("reports/published").glob(f"{encoder}/*/{NAME}.json")
    return path


def test_without_partial_data_the_command_fails_and_names_the_fix(data: Path) -> None:
    code, shown = _run("evaluate", "--encoder", "mine", "--benchmark", NAME, "--data-dir", str(data))
    assert code == 1
    assert "swap_obj.json: 3 found, 245 published: complete the data, or add --allow-partial" in shown
    assert not Path("reports/published").exists()


def test_families_and_collections_name_benchmarks(data: Path) -> None:
    code, shown = _run("evaluate", "--encoder", "mine", "--benchmark", "paraclip", "--data-dir", str(data), "--dry-run")
    assert code == 1
    assert "vg_relation: failed. benchmark 'vg_relation' lacks files" in shown
    assert "paraclip: coco_p, vg_relation, vg_attribution, sts12" in _run("evaluate", "--list")[1]
    code, shown = _run("evaluate", "--encoder", "mine", "--benchmark", "sts", "--data-dir", str(data), "--json")
    assert code == 1
    (outcomes,) = json.loads(shown).values()
    assert [one["benchmark"] for one in outcomes] == ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
    assert {one["state"] for one in outcomes} == {"failed"}
    together = json.loads(_run("evaluate", "--list", "--json")[1])["together"]
    assert together["karpathy_retrieval"] == ["coco_retrieval", "flickr30k_retrieval", "coco_val2017_retrieval"]
    # A benchmark's own name never stands for others.
    assert "sugar_crepe" not in together


def test_bf16_has_results_of_its_own_and_says_so(data: Path) -> None:
    common = ("evaluate", "--encoder", "mine", "--benchmark", NAME, "--data-dir", str(data), "--allow-partial")
    assert _run(*common)[0] == 0
    before = _result("mine").read_text()
    code, shown = _run(*common, "--precision", "bf16")
    assert code == 0
    # A title that is wider than its table goes on in the next line.
    assert f"{NAME}, scored, partial data, bf16" in " ".join(shown.split())
    for precision, state in (("bf16", "kept, partial data, bf16"), ("fp32", "kept, partial data ┏")):
        assert f"{NAME}, {state}" in " ".join(_run(*common, "--precision", precision)[1].split())
    assert _result("mine").read_text() == before
    reports = {name: read_published(_result(name)) for name in ("mine", "mine-bf16")}
    assert [report.precision for report in reports.values()] == ["fp32", "bf16"]
    assert reports["mine"].evaluation != reports["mine-bf16"].evaluation
    assert "| mine-bf16* |" in _run("table")[1]
    code, shown = _run("evaluate", "--precision", "fp16", "--list")
    assert code == 2


def test_a_group_that_is_left_out_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report = PublishedReport(
        encoder="mine", encoder_sha256="x", benchmark="b", version=1, protocol="p", data_hash="d", seconds=1,
        metrics={"b/top1": Result(value=0.5, higher_is_better=True)}, left_out=("comparative: no text on two classes",),
    )  # fmt: skip
    show_outcomes("mine", [BenchmarkRun("b", "kept", report)])
    assert "  left out: comparative: no text on two classes\n" in capsys.readouterr().out
