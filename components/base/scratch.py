"""Trains a small base encoder from random weights with CLIP's loss on images and alt-texts."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.hardware import pick_autocast, pick_device
from components.core.files import content_hash, file_hash
from components.core.records import PAIRS
from components.core.settings import Settings
from components.encoders.adapter.architecture import model_config, plain_name, refuse_batch_statistics
from components.encoders.adapter.encoder import Encoder
from components.methods.contract.features import Features
from components.methods.contract.losses import info_nce
from components.methods.contract.optimisation import Optimisation
from components.tracking import TrackedRun
from components.training.engine.loop import fit
from components.training.engine.meter import report_to
from components.training.engine.run import Engine, Run
from components.training.rows.sources import Images, Wanted, table_source


def pretrain(settings: Settings, train_pairs: Path, tracked: TrackedRun) -> tuple[Encoder, Checkpoints]:
    """Train `base.model` from random weights on `train_pairs` with the settings of `base.scratch`.

    The checkpoints are returned so that the caller clears them once the encoder is saved.

    Raises:
        InputError: the model is unknown, or its image tower cannot start at random.
    """
    base, train, device = settings.base, settings.train, pick_device(settings.train.device)
    assert base.scratch is not None
    config = model_config(base.model)
    torch.manual_seed(train.seed)
    encoder = Encoder.create("base", plain_name(base.model), config, "clip")
    refuse_batch_statistics(encoder.model.visual, base.model)
    model = encoder.model.to(device)
    rows = PAIRS.read(train_pairs, ["id", "image_id", "caption"]).to_pandas()
    images = Images(rows["id"].tolist(), rows["image_id"].tolist(), train_pairs, encoder.sidecar.image_size)
    wanted, cache = Wanted(frozenset({"image", "caption"}), {}), train.state / "tokens"
    plan = Optimisation(**base.scratch.model_dump(), clip_gradient=1.0, image_tower="random")
    fingerprint = content_hash(
        base.model_dump_json(), str(train.seed), train.precision, file_hash(train_pairs), repr(sorted(config.items()))
    )
    checkpoints = Checkpoints(train.state / f"base-{fingerprint[:16]}")
    fit(
        Run(
            title="base",
            model=model,
            trained=dict(model.named_parameters()),
            losses=_losses,
            source=table_source(
                rows, wanted, images, encoder.tokenizer, plan.batch_size, train.seed, cache, visits="pairs"
            ),
            optimisation=plan,
            engine=Engine(
                device=device,
                autocast=pick_autocast(train.precision, device),
                micro_batch=train.micro_batch,
                compiled=train.compile,
                checkpoint_every=train.checkpoint_every,
                log_every=train.log_every,
            ),
            checkpoints=checkpoints,
            report=report_to(tracked),
        )
    )
    model.to("cpu")
    return encoder, checkpoints


def _losses(features: Features) -> dict[str, Tensor]:
    return {"contrastive": info_nce(features["image"], features["caption"], features.scale)}
