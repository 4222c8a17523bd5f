"""Stage `base`: the starting encoder, shipped, trained here, fetched by open_clip or timm, or read from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.devices import pick_device, pick_precision
from components.core.compute.provenance import data_hashes, git_commit
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError, prefixed_errors
from components.core.system.project import run_in_project, start
from components.core.tables import folders
from components.core.tables.files import write_json
from components.core.tracking import RUN_FILE, TrackedRun, tracked_run
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import SQUASHED
from components.encoders.adapter.model_configs import CONFIG, HUB, LOCAL, model_config
from components.encoders.adapter.sidecar import SIDECAR
from components.training.base.contrastive import pretrain
from components.training.base.fitted import fit_towers
from components.training.base.published import folder_encoder, open_clip_encoder, timm_encoder, weights_file_encoder
from components.training.base.shipped import ASSETS, shipped_encoder, write_shipped


def run(settings: Settings, output: Path = folders.BASE, pairs_folder: Path = folders.PAIRS) -> None:
    """Write the base encoder's folder."""
    base, train_pairs = settings.base, pairs_folder / "train.parquet"
    if base.source == "scratch":
        _train(settings, pretrain, output, train_pairs)
    elif base.source == "timm" and base.fit is not None:
        _train(settings, fit_towers, output, train_pairs)
    else:
        with prefixed_errors("params.yaml: base"):
            encoder = _ready_made(settings, train_pairs)
        _add_facts(encoder, settings, name="base")
        encoder.save(output)


def _add_facts(encoder: Encoder, settings: Settings, **facts: Any) -> None:
    if settings.embed.squash:
        facts["preparation"] = encoder.sidecar.preparation.changed(SQUASHED)
    facts |= {"git_commit": git_commit(), "settings": settings.base.model_dump(mode="json")}
    encoder.sidecar = encoder.sidecar.model_copy(update=facts)


def _train(
    settings: Settings,
    trains: Callable[[Settings, Path, TrackedRun], tuple[Encoder, Checkpoints]],
    output: Path,
    train_pairs: Path,
) -> None:
    inputs = {"pairs": train_pairs}
    with prefixed_errors("params.yaml: base"):
        model_config(settings.base.model)
    precision = pick_precision(settings.train.precision, pick_device(settings.device))
    settings = settings.model_copy(update={"train": settings.train.model_copy(update={"precision": precision})})
    params = settings.base.model_dump(mode="json") | {"train": settings.train.model_dump(mode="json")}
    with tracked_run("base", "base", settings, params, inputs) as tracked:
        encoder, checkpoints = trains(settings, train_pairs, tracked)
        _add_facts(encoder, settings, data_hashes=data_hashes(inputs.values()))
        encoder.save(output)
        write_json(output / RUN_FILE, tracked.reference())
        tracked.log_artifact(output)
    checkpoints.clear()


def _ready_made(settings: Settings, train_pairs: Path) -> Encoder:
    """An encoder with weights that are shipped, published or in a file."""
    base, device = settings.base, pick_device(settings.device)
    if base.source == "shipped":
        return shipped_encoder(settings, train_pairs)
    if base.source == "timm":
        return timm_encoder(base.model, base.file, settings.train.seed, base.package)
    if base.source == "open_clip":
        if base.model.startswith((HUB, LOCAL)):
            return folder_encoder(base.model, device)
        if base.pretrained is None:
            raise InputError("source 'open_clip' needs `pretrained`: name a tag such as 'openai'")
        return open_clip_encoder(base.model, base.pretrained, device)
    if base.file is None:
        raise InputError(
            "source 'file' needs `file`: name an encoder folder, an exported folder or a weights file (.safetensors, "
            ".pt, .bin)"
        )
    return _in_file(base.model, base.file, device)


def _in_file(model: str, file: Path, device: str) -> Encoder:
    # An export has both files; the sidecar has its names of model and method.
    if (file / SIDECAR).is_file():
        return Encoder.load(file)
    if (file / CONFIG).is_file():
        return folder_encoder(f"{LOCAL}{file}", device)
    if file.is_dir():
        raise InputError(f"base.file: {file} has neither {CONFIG} nor {SIDECAR}: name an export or a weights file")
    return weights_file_encoder(model, file, device)


def make_asset(settings: Settings, work: Path, assets: Path = ASSETS) -> None:
    """Train the shipped base (`base.scratch`) in `work` and write it to `assets`; raises as `run`, `write_shipped`."""
    base = settings.base.model_copy(update={"source": "scratch"})
    run(settings.model_copy(update={"base": base}), work)
    write_shipped(Encoder.load(work), settings, folders.PAIRS / "train.parquet", assets)


def main(
    asset: Annotated[bool, typer.Option("--asset", help="Train the shipped base and replace its files.")] = False,
) -> None:
    """Make the starting encoder.

    Example: python -m components.training.base.base
    """

    def command() -> None:
        settings = load_checked(entries=())
        if asset:
            make_asset(settings, Path("state/base-asset"))
        else:
            run(settings)

    run_in_project(command)


if __name__ == "__main__":
    start(main)
