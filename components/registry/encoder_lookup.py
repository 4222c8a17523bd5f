"""Loads an encoder by name: a folder, a file, an MLflow run, a registry alias or open_clip's `name:tag`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from components.core.compute.devices import pick_device
from components.core.system.errors import InputError, prefixed_errors
from components.core.tables.files import content_hash
from components.core.tracking import explained, in_store, make_client
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import CONFIG, HUB, LOCAL
from components.encoders.adapter.precision import Precision
from components.encoders.adapter.sidecar import SIDECAR
from components.encoders.sentence_encoder import SentenceEncoder, as_file_name, load_sentence_encoder
from components.encoders.under_test import EncoderUnderTest
from components.registry.encoder_names import ALIAS, RUN, check_name, folders_of, is_sentence_encoder


def find_encoder(name: str, precision: Precision = "fp32", device: str = "auto") -> EncoderUnderTest:
    """Load the encoder `name`; the forms are tried from the most to the least specific.

    Args:
        name: see `cliptune evaluate --encoder`.
        precision: number format of its towers; see `Encoder.compute_in`.
        device: `auto`, `cpu`, `cuda` or `cuda:<number>`; `auto` is the GPU if there is one.

    Examples:
        >>> find_encoder("models/paraclip").encoder.embed_texts(["a dog"]).shape  # doctest: +SKIP
        (1, 512)
        >>> find_encoder("ViT-B-32-quickgelu:openai").preparation.size  # doctest: +SKIP
        224
    """
    check_name(name)
    place = pick_device(device)
    loaded = (load(name) for load in (_from_folder, _from_run, _from_registry, _from_open_clip))
    under_test = next(encoder for encoder in loaded if encoder is not None)
    assert isinstance(under_test.encoder, Encoder | SentenceEncoder)
    under_test.encoder.to(place)
    return under_test if precision == "fp32" else in_precision(under_test, precision)


def in_precision(under_test: EncoderUnderTest, precision: Precision) -> EncoderUnderTest:
    """The encoder, computing in fewer bits from now on; caches, results and tables treat it as another encoder.

    It has no folder, so that its results are not logged into the MLflow run of the float32 encoder.
    """
    encoder, tower = under_test.encoder, under_test.image_tower_sha256
    assert isinstance(encoder, Encoder | SentenceEncoder)
    encoder.compute_in(precision)
    return replace(
        under_test,
        name=f"{under_test.name}-{precision}",
        sha256=content_hash(under_test.sha256, precision),
        image_tower_sha256=content_hash(tower, precision) if tower and precision == "bf16" else tower,
        folder=None,
        precision=precision,
    )


def encoder_under_test(name: str, encoder: Encoder) -> EncoderUnderTest:
    """An image-text encoder for benchmarks, with `name` as a file name."""
    sidecar = encoder.sidecar
    sha256 = sidecar.weights_sha256 or _state_hash(encoder)
    if sidecar.method_tensors_sha256:
        sha256 = content_hash(sha256, sidecar.method_tensors_sha256)
    tower = sidecar.image_tower_sha256 or encoder.image_tower_hash()
    return EncoderUnderTest(as_file_name(name.removeprefix("models:/")), encoder, sha256, tower, sidecar.preparation)


def _from_folder(name: str) -> EncoderUnderTest | None:
    for folder in folders_of(name):
        if (folder / SIDECAR).is_file():
            return replace(encoder_under_test(folder.resolve().name, Encoder.load(folder)), folder=folder)
        if (folder / CONFIG).is_file():
            return _from_open_clip(f"{LOCAL}{folder}")
        if is_sentence_encoder(folder):
            return load_sentence_encoder(folder)
    return None


@explained()
def _from_run(name: str) -> EncoderUnderTest | None:
    matched = RUN.match(name)
    if matched is None:
        return None
    run = matched["run"]
    client = make_client()

    def fetch(folder: Path) -> Path:
        with in_store(client):
            tops = [item.path for item in client.list_artifacts(run) if item.is_dir]
            for top in tops:
                if any(item.path == f"{top}/{SIDECAR}" for item in client.list_artifacts(run, top)):
                    return Path(client.download_artifacts(run, top, str(folder)))
        raise InputError(f"run {run} has no encoder: give the run of a train stage")

    return _fetched(f"run-{run[:8]}", fetch)


@explained()
def _from_registry(name: str) -> EncoderUnderTest | None:
    matched = ALIAS.match(name)
    if matched is None:
        return None
    from components.registry import model as versions

    client = make_client()

    def fetch(folder: Path) -> Path:
        if matched["alias"]:
            version = versions.find_alias(client, matched["model"], matched["alias"])
        else:
            version = client.get_model_version(matched["model"], matched["version"])
        if version is None:
            raise InputError(
                f"{matched['model']} has no alias '{matched['alias']}': `cliptune history` lists the promotions"
            )
        return versions.artifact(client, version, "encoder", folder)

    return _fetched(name, fetch)


def _fetched(name: str, fetch: Callable[[Path], Path]) -> EncoderUnderTest:
    with TemporaryDirectory() as folder:
        return encoder_under_test(name, Encoder.load(fetch(Path(folder))))


def _from_open_clip(name: str) -> EncoderUnderTest | None:
    model, colon, weights = name.partition(":")
    if not colon:
        return None
    from components.training.base.published import encoder_by_name

    with prefixed_errors(f"--encoder '{name}'"):
        encoder = encoder_by_name(name)
    if name.startswith((HUB, LOCAL)):
        return encoder_under_test(encoder.sidecar.model, encoder)
    return encoder_under_test(f"{model}-{Path(weights).stem}" if Path(weights).is_file() else name, encoder)


def _state_hash(encoder: Encoder) -> str:
    state = encoder.model.state_dict()
    parts: list[str | bytes] = [encoder.sidecar.model, encoder.sidecar.tokenizer]
    for tensor in sorted(state):
        parts += [tensor, state[tensor].detach().cpu().contiguous().numpy().tobytes()]
    return content_hash(*parts)
