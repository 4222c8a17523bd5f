"""Stage `base`: the starting encoder: shipped, trained or fitted here, fetched by open_clip or timm, or from a file.

python -m components.base.base
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import open_clip
import typer

from components.base.fitted import fit_towers
from components.base.published import check_file_pixels, check_published, warn_of_activation
from components.base.scratch import pretrain
from components.base.shipped import ASSETS, shipped_encoder, write_shipped
from components.base.timm_tower import timm_encoder
from components.core import folders
from components.core.checking import load_checked
from components.core.compute.checkpoint import Checkpoints
from components.core.compute.hardware import pick_device, pick_precision
from components.core.errors import InputError, told_of
from components.core.files import write_json
from components.core.project import run_in_project, start
from components.core.provenance import data_hashes, git_commit
from components.core.settings import Settings
from components.encoders.adapter.architecture import has_quick_gelu, model_config, plain_name
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.weights import load_weights
from components.tracking import RUN_FILE, TrackedRun, tracked_run


def run(settings: Settings, output: Path = folders.BASE, pairs_folder: Path = folders.PAIRS) -> None:
    """Write the base encoder's folder.

    Raises:
        InputError: the model, tag or file is unknown, broken, or has another activation than its config.
    """
    trains = _trainer(settings)
    if trains is not None:
        _train(settings, trains, output, pairs_folder / "train.parquet")
        return
    fetch = {"open_clip": _from_open_clip, "timm": _from_timm, "file": _from_file}
    source = settings.base.source
    with told_of("params.yaml: base"):
        if source == "shipped":
            encoder = shipped_encoder(settings, pairs_folder / "train.parquet")
        else:
            encoder = fetch[source](settings)
    encoder.sidecar = encoder.sidecar.model_copy(
        update={"name": "base", "git_commit": git_commit(), "settings": settings.base.model_dump(mode="json")}
    )
    encoder.save(output)


_Train = Callable[[Settings, Path, TrackedRun], tuple[Encoder, Checkpoints]]


def _trainer(settings: Settings) -> _Train | None:
    """What trains the base here, if anything does."""
    base = settings.base
    if base.source == "scratch":
        return pretrain
    return fit_towers if base.source == "timm" and base.fit is not None else None


def _train(settings: Settings, trains: _Train, output: Path, train_pairs: Path) -> None:
    inputs = {"pairs": train_pairs}
    with told_of("params.yaml: base"):
        model_config(settings.base.model)
    precision = pick_precision(settings.train.precision, pick_device(settings.train.device))
    settings = settings.model_copy(update={"train": settings.train.model_copy(update={"precision": precision})})
    params = settings.base.model_dump(mode="json") | {"train": settings.train.model_dump(mode="json")}
    with tracked_run("base", "base", settings, params, inputs) as tracked:
        encoder, checkpoints = trains(settings, train_pairs, tracked)
        encoder.sidecar = encoder.sidecar.model_copy(
            update={
                "settings": settings.base.model_dump(mode="json"),
                "data_hashes": data_hashes(inputs.values()),
                "git_commit": git_commit(),
            }
        )
        encoder.save(output)
        write_json(output / RUN_FILE, tracked.reference())
        tracked.log_artifact(output)
    checkpoints.clear()


def _from_open_clip(settings: Settings) -> Encoder:
    base = settings.base
    if base.pretrained is None:
        raise InputError("source 'open_clip' needs `pretrained`: name a tag such as 'openai'")
    return open_clip_encoder(base.model, base.pretrained)


def encoder_by_name(model: str, weights: str) -> Encoder:
    """An open_clip encoder with a file's weights, or with those that open_clip publishes under a tag.

    Raises:
        InputError: the model or tag is unknown, the weights want another activation, or they cannot be read or fetched.
    """
    file = Path(weights)
    return weights_file_encoder(model, file) if file.is_file() else open_clip_encoder(model, weights)


def open_clip_encoder(model: str, tag: str) -> Encoder:
    """An encoder that open_clip publishes.

    Raises:
        InputError: model or tag is unknown, the weights want another activation, or they cannot be fetched.
    """
    config = model_config(model)
    check_published(model, tag, has_quick_gelu(config))
    encoder = Encoder.create("base", model, config, f"open_clip:{tag}")
    try:
        source = open_clip.create_model(model, pretrained=tag, precision="fp32")
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"open_clip weights {model}:{tag} cannot be fetched ({reason}): check the network, or download them and "
            "give the file instead"
        ) from None
    encoder.model.load_state_dict(source.state_dict())
    return encoder


def _from_timm(settings: Settings) -> Encoder:
    base = settings.base
    return timm_encoder(base.model, base.file, settings.train.seed, base.package)


def _from_file(settings: Settings) -> Encoder:
    base = settings.base
    if base.file is None:
        raise InputError(
            "source 'file' needs `file`: name an encoder folder or a weights file (.safetensors, .pt, .bin)"
        )
    if base.file.is_dir():
        return Encoder.load(base.file)
    return weights_file_encoder(base.model, base.file)


def weights_file_encoder(model: str, file: Path) -> Encoder:
    """An encoder of an open_clip configuration with the weights of a file.

    Raises:
        InputError: the model is unknown or wants other pixels, or the file is missing, broken or does not fit it.
    """
    check_file_pixels(plain_name(model), file)
    encoder = Encoder.create("base", plain_name(model), model_config(model), f"file:{file.name}")
    load_weights(encoder.model, file)
    warn_of_activation(plain_name(model), file)
    return encoder


def make_asset(settings: Settings, work: Path, assets: Path = ASSETS) -> None:
    """Train the shipped base with `base.scratch`, in the folder `work`, and write it to `assets`.

    Raises:
        InputError: as `run` and `write_shipped`.
    """
    base = settings.base.model_copy(update={"source": "scratch"})
    run(settings.model_copy(update={"base": base}), work)
    write_shipped(Encoder.load(work), settings, folders.PAIRS / "train.parquet", assets)


def main(
    asset: Annotated[bool, typer.Option("--asset", help="Train the shipped base again and replace its files.")] = False,
) -> None:
    """Make the starting encoder.

    Example: python -m components.base.base
    """
    run_in_project(lambda: make_asset(load_checked(), Path("state/base-asset")) if asset else run(load_checked()))


if __name__ == "__main__":
    start(main)
