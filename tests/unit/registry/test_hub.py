"""A pushed folder has a card with metadata that the hub reads, and nothing is uploaded without a token."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, ModelCard
from typer.testing import CliRunner

from components.cli import app
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring.results import DEFAULT, Report, Result, write_record
from tests.conftest import REPO


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_encoder: Encoder) -> Path:
    """A project with an encoder that has results."""
    shutil.copy(REPO / "params.yaml", tmp_path)
    shutil.copy(REPO / "dvc.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    sidecar = tiny_encoder.save(Path("models/tiny"))
    metrics = {"retrieval/t2i_recall_at_5": Result(value=0.5, higher_is_better=True)}
    metrics["retrieval/plain/t2i_recall_at_5"] = Result(value=0.4, higher_is_better=True)
    report = Report(encoder="tiny", protocol="p", data_hash="d", encoder_sha256=sidecar.weights_sha256, metrics=metrics)
    write_record(DEFAULT.metrics / "tiny.json", report)
    return tmp_path


def _push(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["push", "acme/shop", "--encoder", "models/tiny", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.usefixtures("project")
def test_the_card_has_metrics_licence_and_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: dict[str, Any] = {}

    def upload(_api: HfApi, repo_id: str, folder_path: Path, **_options: Any) -> None:
        uploaded[repo_id] = (
            {file.name for file in folder_path.iterdir()},
            (folder_path / "README.md").read_text("utf-8"),
        )

    monkeypatch.setattr(HfApi, "upload_folder", upload)
    monkeypatch.setattr(HfApi, "create_repo", lambda *_names, **options: uploaded.update(private=options["private"]))
    assert "acme/shop: would be uploaded; loaded back, vectors of 1,000 texts differ" in _push("--dry-run")
    assert uploaded == {}
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    _push("--licence", "mit", "--private")
    assert uploaded["private"] is True
    files, text = uploaded["acme/shop"]
    assert files >= {"README.md", "open_clip_config.json", "open_clip_model.safetensors", "encoder.json"}
    card = ModelCard(text)
    assert (card.data.license, card.data.library_name, "cliptune" in card.data.tags) == ("mit", "open_clip", True)
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("retrieval/t2i_recall_at_5", 50.0)
    assert "## Training data" in text
    assert "open_clip.create_model" in text


@pytest.mark.usefixtures("project")
def test_what_cannot_be_pushed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_names: Any, **_options: Any) -> None:
        raise OSError("401 for token hf_secret")

    monkeypatch.setattr(HfApi, "create_repo", refuse)
    assert "the environment variable HF_TOKEN is not set" in _push(code=1)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    message = _push(code=1)
    assert message == "error: acme/shop: the hub refused the upload (401 for token ...)\n"
    wrong = CliRunner().invoke(app, ["push", "a//b", "--encoder", "models/tiny"]).output
    assert wrong.startswith("error: 'a//b' is not ORG/NAME of the hub: ")
    assert wrong.count("\n") == 1
