"""mteb scores an encoder on pictures made on the spot, and its results are in the tables of all benchmarks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.abstasks.zeroshot_classification import AbsTaskZeroShotClassification
from PIL import Image as Pillow
from typer.testing import CliRunner

from components.cli import app
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.evaluation.benchmarks.mieb import HandedOver, mieb_benchmark
from tests.support.toy_context import toy_context

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
TABLE = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}


class Colours(AbsTaskZeroShotClassification):
    """Three pictures of one colour each, and a fourth that is labelled green and blue."""

    metadata = TaskMetadata(
        name="Colours", description="colours", reference=None, dataset={"path": "made/here", "revision": "1"},
        type="ZeroShotClassification", category="i2t", modalities=["image", "text"], eval_splits=["test"],
        eval_langs=["eng-Latn"], main_score="accuracy", date=("2026-01-01", "2026-01-01"), domains=["Scene"],
        task_subtypes=["Scene recognition"], license="mit", annotations_creators="derived", dialect=[],
        sample_creation="created", bibtex_citation="",
    )  # fmt: skip

    def load_data(self, **_: Any) -> None:
        pictures = [Pillow.new("RGB", (12, 8), colour) for colour in (*COLOURS.values(), COLOURS["blue"])]
        kinds = Features({"image": Image(), "label": ClassLabel(names=list(COLOURS))})
        test = Dataset.from_dict({"image": pictures, "label": [0, 1, 2, 1]}, features=kinds)
        self.dataset, self.data_loaded = DatasetDict({"test": test}), True

    def get_candidate_labels(self) -> list[str]:
        return list(COLOURS)


@pytest.fixture
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the task one of mteb's."""
    monkeypatch.setattr(mteb, "get_task", lambda name: {"Colours": Colours}[name]())


@pytest.mark.slow
@pytest.mark.usefixtures("colours")
def test_three_of_four_pictures_are_named_right_and_results_stand_in_the_tables(
    tmp_path: Path, tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = mieb_benchmark("Colours")
    found = benchmark.score(toy_context(tmp_path, TABLE)).scalars
    assert found["mieb:Colours/accuracy"] == found["mieb:Colours/test/accuracy"] == 0.75
    assert [benchmark.metric(f"mieb:x/{name}").higher_is_better for name in ("ndcg_at_10", "rmse")] == [True, False]
    monkeypatch.chdir(tmp_path)
    tiny_encoder.save(Path("models/mine"))

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == code, done.output
        return done.stdout

    common = ("evaluate", "--encoder", "mine", "--benchmark", "mieb:Colours")
    for state in ("scored", "kept"):
        (outcome,) = json.loads(run(*common, "--json"))["mine"]
        assert outcome["state"] == state
    assert outcome["report"]["metrics"]["mieb:Colours/accuracy"]["higher_is_better"]
    assert "mieb:Colours, kept" in run(*common)
    assert "## mieb:Colours, version 1 (mteb" in run("table")
    monkeypatch.setattr(Colours, "load_data", lambda *_, **__: 1 / 0)
    shown = run(*common, "--overwrite", code=1)
    assert "failed. mieb:Colours: mteb fails with ZeroDivisionError: division by zero" in " ".join(shown.split())


def test_a_row_with_text_and_picture_has_the_sum_of_both_features(tmp_path: Path) -> None:
    handed = HandedOver(toy_context(tmp_path, TABLE).under_test)
    image = Pillow.new("RGB", (8, 8), COLOURS["green"])
    green = handed.encode([{"image": [image]}])
    both = handed.encode([{"text": ["red"], "image": [image]}, {"text": ["blue"], "image": [image]}])
    assert both == pytest.approx(np.array([TABLE["red"], TABLE["blue"]]) + green)
    assert handed.similarity(green, 2 * green).item() == handed.similarity_pairwise(green, green).item() == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CIFAR10Zeroshot", r"mteb has no such task: did you mean CIFAR10ZeroShot or "),
        ("JamAltArtistA2ARetrieval", r"has audio: choose a task of images or texts"),
    ],
)
def test_a_task_that_cannot_be_scored_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"--benchmark mieb:{name}:? {message}"):
        mieb_benchmark(name)


def test_without_mteb_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(InputError, match=r"run `make .venv/.ready`, which installs it"):
        mieb_benchmark("CIFAR10ZeroShot")
