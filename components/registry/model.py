"""The versions of the registered model: creates them, finds them and moves their aliases."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from components.core.system.errors import InputError, shown_address
from components.core.tracking import reason_of
from components.core.tracking.errors import is_transient

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"
CARD, METRICS, VALUES = "model_card.md", "metrics.json", "values.safetensors"
SHA_TAG = "encoder_sha256"
ROLLED_BACK = "rolled_back"
PROMOTED = "promoted"
"""Tag of a version: time at which the gate or a rollback last made it champion."""
_LONGEST_DESCRIPTION = 5000
"""Characters, the limit of MLflow's database."""
_DESCRIPTION = """Text encoders for image search, fine-tuned so that searches which mean the same find the same images.

Users get `@champion`: `mlflow.pyfunc.load_model("models:/<name>@champion").predict(["a child on a couch"])`
gives a unit vector for each text, in the space of its image tower. `@previous` was champion before and `@challenger`
waits to be tried. A version's page lists its training data, its scores and the reason for its promotion.
"""
_COMPONENTS = Path(__file__).parents[1]
_SCRIPT = Path(__file__).with_name("served_encoder.py")
_PACKAGES = (
    "huggingface_hub",
    "mlflow",
    "numpy",
    "open_clip_torch",
    "packaging",
    "pandas",
    "pillow",
    "psutil",
    "pydantic",
    "safetensors",
    "torch",
    "tqdm",
    "transformers",
)
"""All packages that the copied code imports."""


def find_alias(client: MlflowClient, model: str, alias: str) -> Any | None:
    """The version that `alias` points at, or None."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(model, alias)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def find_weights(client: MlflowClient, model: str, sha256: str) -> Any | None:
    """The newest version whose encoder has these weights, or None."""
    versions = client.search_model_versions(f"name = '{model}'")
    same = [version for version in versions if version.tags.get(SHA_TAG) == sha256]
    return max(same, key=lambda version: int(version.version), default=None)


@dataclass(frozen=True)
class VersionFiles:
    """The files of a version: the encoder's folder, its results with their values per query, its card, and dvc.lock."""

    encoder: Path
    metrics: Path
    values: Path
    card: str
    dvc_lock: Path


def register(client: MlflowClient, model: str, parts: VersionFiles, *, run_id: str, tags: Mapping[str, str]) -> str:
    """Register an encoder folder as a version of `model`; returns its number.

    The files become artifacts of the training run `run_id`. They include the results, because the next candidate is
    judged against them.
    """
    source = upload(client, parts, run_id, tags[SHA_TAG])
    create_model(client, model)
    created = client.create_model_version(
        model, source, run_id, tags=dict(tags), description=shortened(parts.card, _LONGEST_DESCRIPTION)
    )
    return str(created.version)


def create_model(client: MlflowClient, model: str) -> None:
    """Make the registered model, unless there is one."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(model, description=_DESCRIPTION)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def tags_of_model(client: MlflowClient, model: str) -> dict[str, str]:
    """The tags of the registered model; empty before it is made."""
    from mlflow.exceptions import MlflowException

    try:
        return dict(client.get_registered_model(model).tags)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return {}


def upload(client: MlflowClient, parts: VersionFiles, run_id: str, sha256: str) -> str:
    """Write the files of a version with these weights into the artifacts of a run; returns their place."""
    place = f"registered/{sha256[:12]}"
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        save_model(folder, parts)
        client.log_artifacts(run_id, str(folder), place)
    return f"{client.get_run(run_id).info.artifact_uri.rstrip('/')}/{place}"


def shortened(card: str, longest: int) -> str:
    """The card, cut at a line to at most `longest` characters."""
    if len(card) <= longest:
        return card
    ending = f"\n\n(truncated; the artifact {CARD} is the whole card)\n"
    return card[: longest - len(ending)].rpartition("\n")[0] + ending


def save_model(folder: Path, parts: VersionFiles) -> None:
    """Write a self-contained MLflow model: script, code, safetensors, sidecar, results, card, dvc.lock."""
    import mlflow
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    from components.encoders.adapter.sidecar import read_sidecar

    vectors = TensorSpec(np.dtype(np.float32), (-1, read_sidecar(parts.encoder).embed_dim))
    with TemporaryDirectory() as temporary:
        code = _served_code(Path(temporary))
        artifacts = _copied(parts, Path(temporary) / "artifacts")
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(_SCRIPT),
            artifacts={path.stem: str(path) for path in artifacts},
            # The column has no name, so that a list of texts is accepted as well as a table.
            signature=ModelSignature(Schema([ColSpec(DataType.string)]), Schema([vectors])),
            input_example=["a child on a couch"],
            pip_requirements=[f"{package}=={metadata.version(package)}" for package in _PACKAGES],
            code_paths=[str(code)],
        )


def _copied(parts: VersionFiles, folder: Path) -> list[Path]:
    """A version's artifacts with their names in the version."""
    shutil.copytree(parts.encoder, folder / "encoder")
    shutil.copy(parts.metrics, folder / METRICS)
    if parts.values.is_file():
        shutil.copy(parts.values, folder / VALUES)
    (folder / CARD).write_text(parts.card, encoding="utf-8")
    if parts.dvc_lock.is_file():
        shutil.copy(parts.dvc_lock, folder / "dvc.lock")
    return sorted(folder.iterdir())


def _served_code(folder: Path) -> Path:
    """A copy of the part of this package that a registered encoder imports."""
    code = folder / _COMPONENTS.name
    for package in ("core", "encoders"):
        shutil.copytree(_COMPONENTS / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_COMPONENTS / "__init__.py", code)
    return code


def artifact(client: MlflowClient, version: Any, name: str, folder: Path) -> Path:
    """Download an artifact of a version (`encoder` or `metrics.json`) into `folder`; InputError if there is none."""
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    source = client.get_model_version_download_uri(version.name, version.version)
    try:
        return Path(download_artifacts(artifact_uri=f"{source}/artifacts/{name}", dst_path=str(folder)))
    except (MlflowException, OSError) as error:
        if is_transient(error):
            raise
        fix = "`cliptune promote` restores them from models/ if its weights are there, `cliptune rollback` leaves it"
        if CHAMPION not in version.aliases:
            fix = f"restore {shown_address(source)}, or name another version"
        raise InputError(
            f"version {version.version} of {version.name} has lost its files ({reason_of(error)}): {fix}"
        ) from None
