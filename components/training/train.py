"""Stage `train`: fine-tune the base encoder with one method.

python -m components.training.train --method paraclip
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from components.data.prepare import PAIRS_FOLDER
from components.encoders.base import OUTPUT as BASE_FOLDER
from components.encoders.embed import OUTPUT as EMBEDDINGS_FOLDER
from components.encoders.embeddings import ImageEmbeddings
from components.encoders.encoder import Encoder
from components.encoders.text_tower import encode_tokens
from components.encoders.tokens import trimmed
from components.errors import InputError, run_command
from components.files import content_hash, write_json
from components.methods import find_method
from components.methods.method import Method
from components.provenance import data_hashes, git_commit
from components.settings import Settings, load_settings
from components.tracking import RUN_FILE, TrackedRun, tracked_run
from components.training.checkpoint import Checkpoints
from components.training.examples import load_examples
from components.training.hardware import pick_autocast, pick_device
from components.training.loop import Run, fit
from components.training.reporting import report_to
from components.training.sampler import Rows, Sampler

EXAMPLES = Path("data/validated/paraphrases.parquet")
MODELS = Path("models")


def run(
    settings: Settings,
    name: str,
    *,
    models: Path = MODELS,
    base: Path = BASE_FOLDER,
    examples: Path = EXAMPLES,
    embeddings: Path = EMBEDDINGS_FOLDER,
    pairs_folder: Path = PAIRS_FOLDER,
) -> None:
    """Write `models/<name>/`: the fine-tuned encoder and a reference to its MLflow run.

    Raises:
        InputError: the method is unknown, its settings are wrong, or its data is missing or does not fit.
    """
    method = find_method(name)
    if name not in settings.methods:
        raise InputError(f"params.yaml has no block methods.{name}: add one (it may be empty: {{}})")
    hyper = method.settings(settings.methods[name])
    encoder = Encoder.load(base)
    images = ImageEmbeddings.open(embeddings, "train", pairs_folder / "train.parquet")
    if images.image_tower_sha256 != encoder.sidecar.image_tower_sha256:
        raise InputError(f"{embeddings} was made by another image tower than {base} has: run `dvc repro embed`")
    inputs = {"examples": examples, "embeddings": embeddings, "base": base / "encoder.safetensors"}
    params = asdict(hyper) | {"train": settings.train.model_dump(mode="json")}
    with tracked_run("train", name, settings, params, inputs) as tracked:
        hashes = data_hashes(inputs.values())
        checkpoints = _train(settings, method, hyper, encoder, images, examples, hashes, tracked)
        encoder.sidecar = encoder.sidecar.model_copy(
            update={
                "name": name,
                "method": name,
                "settings": asdict(hyper),
                "data_hashes": hashes,
                "git_commit": git_commit(),
            }
        )
        folder = models / name
        encoder.save(folder)
        write_json(folder / RUN_FILE, tracked.reference())
        tracked.log_artifact(folder)
    checkpoints.clear()


def _train(
    settings: Settings,
    method: Method,
    hyper: Any,
    encoder: Encoder,
    images: ImageEmbeddings,
    examples: Path,
    hashes: dict[str, str],
    tracked: TrackedRun,
) -> Checkpoints:
    device = pick_device(settings.train.device)
    torch.manual_seed(settings.train.seed)
    model = encoder.model.to(device)
    columns = method.columns(hyper)
    data = load_examples(examples, columns, images, encoder.sidecar.context_length)

    def losses(rows: Rows) -> dict[str, Tensor]:
        features = {
            column: encode_tokens(model, trimmed(tokens[rows]).to(device)) for column, tokens in data.tokens.items()
        }
        if "image" in columns:
            features["image"] = torch.from_numpy(np.asarray(images.features[data.images[rows]])).to(device)
        return method.losses(features, model.logit_scale.exp(), hyper)

    fingerprint = content_hash(method.name, repr(hyper), str(settings.train.seed), *sorted(hashes.values()))
    checkpoints = Checkpoints(settings.train.state / f"{method.name}-{fingerprint[:16]}")
    fit(
        Run(
            title=method.name,
            model=model,
            trained=method.freeze(model),
            losses=losses,
            sampler=Sampler(data.groups, hyper.batch_size, settings.train.seed),
            optimisation=hyper,
            checkpoints=checkpoints,
            checkpoint_every=settings.train.checkpoint_every,
            report=report_to(tracked),
            log_every=settings.train.log_every,
            device=device,
            autocast=pick_autocast(settings.train.precision, device),
        )
    )
    model.to("cpu")
    return checkpoints


def main(method: Annotated[str, typer.Option(help="A file of components/methods/, such as paraclip.")]) -> None:
    """Fine-tune the base encoder with one method and its settings in params.yaml."""
    run_command(lambda: run(load_settings(), method))


if __name__ == "__main__":
    typer.run(main)
