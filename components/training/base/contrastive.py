"""Contrastive training of a base from random weights on images and alt-texts; synthetic scenes may add a loss.

From 20,000 alt-texts a small tower learns sizes, layouts and colours, which distinguish the images of a batch. It
learns objects late, and never left from right: if both towers were mirrored, they would agree equally well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.devices import pick_device
from components.core.compute.provenance import code_hash
from components.core.settings import Settings
from components.core.tables.files import content_hash, file_hash
from components.core.tables.records import PAIRS
from components.core.tracking import TrackedRun
from components.data.world.lexicon import load_lexicon
from components.data.world.scenes import RELATIONS, Scene
from components.encoders.adapter.architecture import refuse_batch_statistics
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import model_config, plain_name
from components.training.engine.loop import fit
from components.training.engine.meter import report_to
from components.training.engine.run import LoopOptions, Run
from components.training.methods.contract.losses import Features, Losses, info_nce, unit
from components.training.methods.contract.method import Optimisation
from components.training.rows.batches import BatchPlan, BatchSource
from components.training.rows.sources import TableImages, table_source
from components.training.rows.tables import Rows

SHOWN, PLACES = "shown", "places"
"""Labels: the objects of the lexicon that a picture shows, `[rows, objects]`; the object that is left, right, above and
below of the other, from 1 on, 0 for none, `[rows, 4]`."""

_SHARPNESS = 3.0
"""Factor of the objects' logits, so that their layer need not grow large."""
_LOG_SCALE = 3.0
"""Initial logarithm of the factor of the places' cosines."""


def pretrain(settings: Settings, train_pairs: Path, tracked: TrackedRun) -> tuple[Encoder, Checkpoints]:
    """Train `base.model` from random weights on `train_pairs` with the settings of `base.scratch`."""
    base = settings.base
    assert base.scratch is not None
    config = model_config(base.model)
    torch.manual_seed(settings.train.seed)
    encoder = Encoder.create("base", plain_name(base.model), config, "clip")
    refuse_batch_statistics(encoder.model.visual, base.model)
    rows, weight = train_rows(train_pairs), base.scratch.attribute_loss_weight
    labels = scene_labels(train_pairs) if weight else {}
    naming = Naming(encoder.sidecar.embed_dim, weight) if labels else None
    images = TableImages(rows["id"].tolist(), rows["image_id"].tolist(), train_pairs, encoder.sidecar.preparation)
    own = base.scratch.model_dump(exclude={"attribute_loss_weight"})
    # The logit scale decays too: if it grows freely, a batch is distinguished before relations are learned.
    plan = Optimisation(**own, decay_all=True, clip_gradient=1.0, image_tower="random")
    batches = BatchPlan(frozenset({"image", "caption"}), plan.batch_size, settings.train.seed, visits="pairs")
    source = table_source(rows, images, batches, encoder.tokenizer, settings.train.checkpoint_dir / "tokens", labels)
    depends_on = [file_hash(train_pairs), repr(sorted(config.items()))]
    return encoder, contrast(encoder.model, source, plan, settings, tracked, depends_on, naming=naming)


def train_rows(train_pairs: Path) -> pd.DataFrame:
    """A row for each pair: `id`, `image_id`, `caption`."""
    rows: pd.DataFrame = PAIRS.read(train_pairs, ["id", "image_id", "caption"]).to_pandas()
    return rows


def contrast(
    model: Any,
    source: BatchSource,
    plan: Optimisation,
    settings: Settings,
    tracked: TrackedRun,
    depends_on: list[str],
    rates: Mapping[str, float] | None = None,
    naming: Naming | None = None,
) -> Checkpoints:
    """Train all of `model`; returns the checkpoints, for the caller to clear once the encoder is saved.

    Args:
        depends_on: inputs of the weights besides the settings; only checkpoints with the same inputs are resumed.
        naming: a second loss, whose tensors are trained and not kept.
    """
    base, train = settings.base, settings.train
    device = pick_device(settings.device)
    fingerprint = content_hash(base.model_dump_json(), str(train.seed), train.precision, *depends_on)
    checkpoints = Checkpoints(train.checkpoint_dir / f"base-{fingerprint[:16]}", code=code_hash("base"))
    model.to(device)
    extra = nn.Module() if naming is None else naming.to(device)
    extra_weights = {f"extra.{name}": weights for name, weights in extra.named_parameters()}

    def losses(features: Features) -> Losses:
        clip = {"contrastive": info_nce(features["image"], features["caption"], features.scale)}
        return clip if naming is None else clip | naming(features)

    fit(
        Run(
            title="base",
            model=model,
            trained=dict(model.named_parameters()) | extra_weights,
            losses=losses,
            extra=extra,
            source=source,
            optimisation=plan,
            options=LoopOptions.of(train, device),
            checkpoints=checkpoints,
            report=report_to(tracked),
            rates=rates or {},
        )
    )
    model.to("cpu")
    return checkpoints


def scene_labels(pairs: Path) -> dict[str, Rows]:
    """The labels `SHOWN` and `PLACES` of each pair; no labels if a picture was not drawn from facts."""
    facts = PAIRS.read(pairs, ["facts"])["facts"].to_pylist()
    if None in facts:
        return {}
    number = {name: place for place, name in enumerate(load_lexicon().objects)}
    shown = np.zeros((len(facts), len(number)), dtype=np.int64)
    places = np.zeros((len(facts), len(RELATIONS)), dtype=np.int64)
    for row, scene in enumerate(map(Scene.from_json, facts)):
        shown[row, [number[name] for name in scene.names]] = 1
        if scene.second is not None:
            for side in (scene, scene.mirrored()):
                places[row, RELATIONS.index(side.relation)] = 1 + number[side.first.name]
    return {SHOWN: shown, PLACES: places}


class Naming(nn.Module):
    """Cross-entropies of a classifier of an image's objects, and of one of the objects' places for both towers.

    Images and captions share the places' directions, so that the towers agree on them.
    """

    def __init__(self, dim: int, weight: float) -> None:
        super().__init__()
        self._weight, objects = weight, len(load_lexicon().objects)
        self.shown = nn.Linear(dim, objects)
        self.places = nn.Parameter(torch.randn(len(RELATIONS) * (1 + objects), dim))
        self.log_scale = nn.Parameter(torch.tensor(_LOG_SCALE))

    def forward(self, features: Features) -> Losses:
        """Losses of a batch with labels; the objects of a picture share its probability."""
        shown, places = features.labels[SHOWN].float(), features.labels[PLACES].flatten()
        logits = _SHARPNESS * self.shown(features.raw("image").own)
        directions = self.log_scale.exp() * unit(self.places)
        losses = {"naming": F.cross_entropy(logits, shown / shown.sum(dim=1, keepdim=True))}
        for column in ("image", "caption"):
            at = (features[column].own @ directions.T).view(len(places), -1)
            losses[f"placing_{column}"] = F.cross_entropy(at, places)
        return {name: self._weight * loss for name, loss in losses.items()}
