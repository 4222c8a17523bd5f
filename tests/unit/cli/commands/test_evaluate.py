"""`cliptune evaluate` and `cliptune table` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from components.cli.commands.evaluate import _show as show_outcomes
from components.data.test_sets.readers.sugar_crepe import SUBSETS
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring.published import BenchmarkRun
from components.evaluation.scoring.results import PublishedReport, Result, read_published
from tests.support.typed import cliptune

ROW = {"id": 0, "filename": "a.png", "caption": "a dog", "caption2": "one dog", "negative_caption": "two red cats"}
NAME = "sugar_crepe_pp_text"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with two encoders, and three rows of each subset of a benchmark."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        tiny_encoder.sidecar = tiny_encoder.sidecar.model_copy(update={"name": name})
        tiny_encoder.save(Path("models") / name)
    folder = tmp_path / "benchmarks" / "sugar_crepe_pp"
    folder.mkdir(parents=True)
    for subset in SUBSETS:
        (folder / f"{subset}.json").write_text(json.dumps([ROW] * 3))


def _evaluate(*arguments: str, code: int = 0) -> str:
    """The output of `cliptune evaluate` on the few rows of `data`."""
    common = ("--benchmark", NAME, "--data-dir", "benchmarks", "--allow-partial")
    return cliptune("evaluate", *common, *arguments, code=code)


def test_partial_data_are_scored_if_allowed_then_kept_and_in_every_table() -> None:
    shown = cliptune("evaluate", "--encoder", "mine", "--benchmark", NAME, "--data-dir", "benchmarks", code=1)
    assert "swap_obj.json: 3 found, 245 published: complete the data, or add --allow-partial" in shown
    assert f"{NAME}: would be scored" in _evaluate("--encoder", "mine", "--dry-run")
    assert not Path("reports/published").exists()
    shown = _evaluate("--encoder", "mine", "--encoder", "models/other")
    assert shown.count(f"{NAME}, scored, partial data") == 2
    assert "not as published: swap_obj.json: 3 found, 245 published" in shown
    (outcome,) = json.loads(_evaluate("--encoder", "mine", "--json"))["mine"]
    assert outcome["state"] == "kept"
    assert all(0 <= metric["value"] <= 1 for metric in outcome["report"]["metrics"].values())
    assert f"{NAME}, kept, partial data" in _evaluate("--encoder", "mine")
    shown = cliptune("table", "--groups")
    assert "| mine* |" in shown
    assert "swap_obj/tot" in shown
    shown = cliptune("table", "--collection", "paraclip", "--format", "html", "--output", "table.html")
    assert shown == "wrote table.html\n"
    assert "OpenAI&#39;s CLIP (400M) (paper)" in Path("table.html").read_text()
    shown = cliptune("table", "--baseline", "other", "--format", "csv")
    assert shown.startswith("table,encoder,source,column,value,half_width")


def test_two_encoders_of_one_name_do_not_overwrite_each_other() -> None:
    other = Encoder.load(Path("models/other"))
    with torch.no_grad():
        next(other.model.parameters()).add_(1)
    other.save(Path("elsewhere/mine"))
    for encoder in ("mine", "elsewhere/mine", "mine"):
        _evaluate("--encoder", encoder)
    first, second = sorted(f"mine {path.parent.name}" for path in Path("reports/published").glob(f"mine/*/{NAME}.json"))
    shown = cliptune("table")
    assert all(f"| {name}* |" in shown for name in (first, second))
    assert f"## {second} against {first}, same queries" in cliptune("table", "--baseline", first)
    refusal = f"--baseline 'mine' has no results: choose one of '{first}', '{second}'"
    assert refusal in cliptune("table", "--baseline", "mine", code=1)


def _result(encoder: str) -> Path:
    (path,) = Path("reports/published").glob(f"{encoder}/*/{NAME}.json")
    return path


def test_families_and_collections_name_benchmarks() -> None:
    common = ("evaluate", "--encoder", "mine", "--data-dir", "benchmarks")
    shown = cliptune(*common, "--benchmark", "paraclip", "--dry-run", code=1)
    assert "vg_relation: failed. benchmark 'vg_relation' lacks files" in shown
    assert "paraclip: coco_p, vg_relation, vg_attribution, sts12" in cliptune("evaluate", "--list")
    (outcomes,) = json.loads(cliptune(*common, "--benchmark", "sts", "--json", code=1)).values()
    names = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
    assert [(outcome["benchmark"], outcome["state"]) for outcome in outcomes] == [(name, "failed") for name in names]
    together = json.loads(cliptune("evaluate", "--list", "--json"))["together"]
    assert together["karpathy_retrieval"] == ["coco_retrieval", "flickr30k_retrieval", "coco_val2017_retrieval"]
    # A benchmark's own name never stands for others.
    assert "sugar_crepe" not in together


def test_bf16_results_are_kept_and_shown_apart() -> None:
    _evaluate("--encoder", "mine")
    before = _result("mine").read_text()
    # A title that is wider than its table continues in the next line.
    for precision, state in (
        ("bf16", "scored, partial data, bf16"), ("bf16", "kept, partial data, bf16"), ("fp32", "kept, partial data ┏")
    ):  # fmt: skip
        shown = _evaluate("--encoder", "mine", "--precision", precision)
        assert f"{NAME}, {state}" in " ".join(shown.split())
    assert _result("mine").read_text() == before
    plain, mixed = (read_published(_result(name)) for name in ("mine", "mine-bf16"))
    assert (plain.precision, mixed.precision) == ("fp32", "bf16")
    assert plain.evaluation != mixed.evaluation
    assert "| mine-bf16* |" in cliptune("table")
    cliptune("evaluate", "--precision", "fp16", "--list", code=2)


def test_a_group_that_is_left_out_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report = PublishedReport(
        encoder="mine", encoder_sha256="x", benchmark="b", version=1, protocol="p", data_hash="d", seconds=1,
        metrics={"b/top1": Result(value=0.5, higher_is_better=True)}, left_out=("comparative: no text on two classes",),
    )  # fmt: skip
    show_outcomes("mine", [BenchmarkRun("b", "kept", report)])
    assert "  left out: comparative: no text on two classes\n" in capsys.readouterr().out
