"""Trains a small base encoder from random weights with CLIP's loss on images and alt-texts, and with what they show."""

from __future__ import annotations

from pathlib import Path

import torch

from components.base.contrasting import contrast, pairs_source, train_rows
from components.base.naming import Naming, scene_labels
from components.core.compute.checkpoint import Checkpoints
from components.core.files import file_hash
from components.core.settings import Settings
from components.encoders.adapter.architecture import model_config, plain_name, refuse_batch_statistics
from components.encoders.adapter.encoder import Encoder
from components.methods.contract.optimisation import Optimisation
from components.tracking import TrackedRun
from components.training.rows.sources import Images


def pretrain(settings: Settings, train_pairs: Path, tracked: TrackedRun) -> tuple[Encoder, Checkpoints]:
    """Train `base.model` from random weights on `train_pairs` with the settings of `base.scratch`.

    Raises:
        InputError: the model is unknown, or its image tower cannot start at random.
    """
    base = settings.base
    assert base.scratch is not None
    config = model_config(base.model)
    torch.manual_seed(settings.train.seed)
    encoder = Encoder.create("base", plain_name(base.model), config, "clip")
    refuse_batch_statistics(encoder.model.visual, base.model)
    rows, weight = train_rows(train_pairs), base.scratch.naming
    labels = scene_labels(train_pairs) if weight else {}
    naming = Naming(encoder.sidecar.embed_dim, weight) if labels else None
    images = Images(rows["id"].tolist(), rows["image_id"].tolist(), train_pairs, encoder.sidecar.image_size)
    own = base.scratch.model_dump(exclude={"naming"})
    # The logit scale decays too: where it grows freely, a batch is told apart before relations are needed for it.
    plan = Optimisation(**own, decay_all=True, clip_gradient=1.0, image_tower="random")
    source = pairs_source(rows, images, encoder.tokenizer, plan, settings, "pairs", labels)
    depends_on = [file_hash(train_pairs), repr(sorted(config.items()))]
    return encoder, contrast(encoder.model, source, plan, settings, tracked, depends_on, naming=naming)
