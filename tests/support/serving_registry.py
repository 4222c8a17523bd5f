"""A registry with versions of a served model, made without the stages that a promotion needs."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from components.core.tables.files import write_json
from components.core.tracking import make_client
from components.encoders.adapter.encoder import Encoder
from components.registry.model import CHAMPION, SHA_TAG, VersionFiles, register

MODEL = "text-encoder"


def register_champion(encoder: Encoder, alias: str | None = CHAMPION) -> str:
    """Register an encoder in the store of `MLFLOW_TRACKING_URI` and point the alias at it; returns its version."""
    client = make_client()
    with TemporaryDirectory() as name:
        folder = Path(name)
        encoder.save(folder / "encoder")
        write_json(folder / "metrics.json", {})
        parts = VersionFiles(folder / "encoder", folder / "metrics.json", folder / "none", "a card", folder / "none")
        run = client.create_run("0").info.run_id
        version = register(client, MODEL, parts, run_id=run, tags={SHA_TAG: encoder.sidecar.weights_sha256})
    if alias is not None:
        point(alias, version)
    return version


def point(alias: str, version: str) -> None:
    make_client().set_registered_model_alias(MODEL, alias, version)
