"""A base encoder trained here from nothing: CLIP's objective on images and alt-texts."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from components.encoders.architecture import model_config
from components.encoders.encoder import Encoder
from components.encoders.images import decode, normalise
from components.encoders.text_tower import encode_tokens
from components.encoders.tokens import tokenize, trimmed
from components.files import content_hash, file_hash
from components.records import PAIRS
from components.settings import Settings
from components.tracking import TrackedRun
from components.training.checkpoint import Checkpoints
from components.training.hardware import pick_autocast, pick_device
from components.training.loop import Run, fit
from components.training.losses import info_nce
from components.training.optimisation import Optimisation
from components.training.reporting import report_to
from components.training.sampler import Rows, Sampler


def pretrain(settings: Settings, train_pairs: Path, tracked: TrackedRun) -> tuple[Encoder, Checkpoints]:
    """Train `base.model` from random weights on `train_pairs` with the settings of `base.scratch`.

    The checkpoints are returned so that the caller clears them once the encoder is saved.
    """
    base, device = settings.base, pick_device(settings.train.device)
    config = model_config(base.model)
    torch.manual_seed(settings.train.seed)
    encoder = Encoder.create("base", base.model, config, "clip")
    model = encoder.model.to(device)
    pairs = PAIRS.read(train_pairs, ["id", "image", "caption"])
    pixels = decode(pairs["image"].to_pylist(), encoder.sidecar.image_size, pairs["id"].to_pylist())
    tokens = tokenize(pairs["caption"].to_pylist(), encoder.sidecar.context_length)

    def losses(rows: Rows) -> dict[str, Tensor]:
        images = F.normalize(model.encode_image(normalise(pixels[rows].to(device))), dim=-1)
        texts = encode_tokens(model, trimmed(tokens[rows]).to(device))
        return {"contrastive": info_nce(images, texts, model.logit_scale.exp())}

    scratch = base.scratch
    plan = Optimisation(
        lr=scratch.lr,
        batch_size=scratch.batch_size,
        epochs=scratch.epochs,
        weight_decay=scratch.weight_decay,
        warmup_steps=scratch.warmup_steps,
        clip_gradient=1.0,
    )
    fingerprint = content_hash(
        base.model_dump_json(), str(settings.train.seed), file_hash(train_pairs), repr(sorted(config.items()))
    )
    checkpoints = Checkpoints(settings.train.state / f"base-{fingerprint[:16]}")
    ids = torch.arange(len(pairs)).numpy()
    fit(
        Run(
            title="base",
            model=model,
            trained=dict(model.named_parameters()),
            losses=losses,
            sampler=Sampler(ids, plan.batch_size, settings.train.seed),
            optimisation=plan,
            checkpoints=checkpoints,
            checkpoint_every=settings.train.checkpoint_every,
            report=report_to(tracked),
            log_every=settings.train.log_every,
            device=device,
            autocast=pick_autocast(settings.train.precision, device),
        )
    )
    model.to("cpu")
    return encoder, checkpoints
