"""Pushes an exported encoder to a repository of the Hugging Face hub, with its metrics, data and licence."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from components.core.settings import load_settings
from components.core.system.errors import InputError
from components.encoders.adapter.sidecar import Sidecar, read_sidecar
from components.evaluation.scoring.results import DEFAULT, Report, read_report
from components.registry.export import export_encoder

TOKEN = "HF_TOKEN"
_LIBRARIES = {"open_clip": "open_clip", "huggingface": "transformers", "sentence_transformers": "sentence-transformers"}
_CARD = "README.md"


@dataclass(frozen=True)
class Pushed:
    """The content of a repository: the files with their sizes, the card, and the result of comparing vectors."""

    files: Sequence[tuple[str, int]]
    card: str
    comparison: str


def push(name: str, repository: str, format_name: str, licence: str, *, private: bool, dry_run: bool) -> Pushed:
    """Export an encoder, and upload it unless `dry_run`.

    Args:
        licence: an identifier of the hub, such as apache-2.0.
    """
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise InputError(f"'{repository}' is not ORG/NAME of the hub: {str(error).splitlines()[0]}") from None
    if not dry_run and not os.environ.get(TOKEN):
        raise InputError(f"the environment variable {TOKEN} is not set: put a token with write access there")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, "exported")
        comparison = export_encoder(name, format_name, str(folder)).partition("; ")[2]
        card = _card(read_sidecar(folder), (folder / _CARD).read_text("utf-8"), format_name, licence)
        (folder / _CARD).write_text(card, encoding="utf-8")
        files = [(str(file.relative_to(folder)), file.stat().st_size) for file in sorted(folder.rglob("*"))]
        if not dry_run:
            _upload(folder, repository, private)
    return Pushed(files, card, comparison)


def _upload(folder: Path, repository: str, private: bool) -> None:
    api = HfApi(token=os.environ[TOKEN])
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Encoder and card by cliptune")
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0].replace(os.environ[TOKEN], "...")
        raise InputError(f"{repository}: the hub refused the upload ({reason})") from None


def _card(sidecar: Sidecar, text: str, format_name: str, licence: str) -> str:
    """The exported README with the hub's metadata."""
    settings, report = load_settings(), _report(sidecar)
    card = settings.promote.card
    facts = {"Licences": card.licences, "Training data": (card.data,), "Known weaknesses": card.weaknesses}
    known = {title: [line for line in lines if line] for title, lines in facts.items()}
    described = settings.dataset.name in card.datasets
    sections = [f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines) for title, lines in known.items() if lines]
    data = ModelCardData(
        license=licence,
        library_name=_LIBRARIES.get(format_name, "onnx"),
        tags=["clip", "image-text-retrieval", "cliptune", sidecar.method],
        model_name=sidecar.name,
        eval_results=_results(report, settings.dataset.name) if report is not None else None,
    )
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join([text, *(sections if described else [])])))


def _report(sidecar: Sidecar) -> Report | None:
    """The results of these very weights, if stage `evaluate` scored them."""
    if not (DEFAULT.metrics / f"{sidecar.name}.json").is_file():
        return None
    report = read_report(sidecar.name, DEFAULT.metrics)
    return report if report.encoder_sha256 == sidecar.weights_sha256 else None


def _results(report: Report, dataset: str) -> list[EvalResult]:
    """Metrics over all queries, times 100."""
    shared: dict[str, Any] = {"task_type": "image-text-retrieval", "dataset_type": dataset, "dataset_name": dataset}
    return [
        EvalResult(metric_type=name, metric_value=round(100 * result.value, 2), **shared)
        for name, result in report.metrics.items()
        if name.count("/") == 1
    ]
