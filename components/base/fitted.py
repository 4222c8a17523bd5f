"""Fits a language model as text tower to an image tower of timm's that stays as it is, with CLIP's loss.

The image tower's own part, its trunk, is frozen, so its features are computed once and kept in `train.state`, block by
block: a stage that was killed goes on behind the last whole block. What trains is small: the projection of these
features, the language model and its projection. The encoder that comes of it is one like any other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from components.base.contrasting import contrast, pairs_source, train_rows
from components.base.timm_tower import timm_encoder
from components.core.arrays import mapped_array
from components.core.compute.checkpoint import Checkpoints
from components.core.errors import InputError, told_of
from components.core.files import atomic_file, content_hash, file_hash
from components.core.pictures import PICTURE, Pictures
from components.core.progress import bar
from components.core.provenance import code_hash
from components.core.records import PAIRS
from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.adapter.language_tower import LanguageClip
from components.encoders.embeddings import require_finite
from components.encoders.new_text_towers import with_language_tower
from components.methods.contract.optimisation import Optimisation
from components.tracking import TrackedRun
from components.training.rows.batches import TableSource
from components.training.rows.sources import Images

_BLOCK = 1024
"""Pairs whose images are read together and whose features are one file."""
_BATCH = 32
"""Images that go through the trunk at once."""


def fit_towers(settings: Settings, train_pairs: Path, tracked: TrackedRun) -> tuple[Encoder, Checkpoints]:
    """Train `base.model` with a language model as text tower on `train_pairs` with the settings of `base.fit`.

    Raises:
        InputError: the image tower is not timm's or has no projection, or weights cannot be had or do not fit.
    """
    base, seed = settings.base, settings.train.seed
    assert base.fit is not None
    with told_of("params.yaml: base"):
        whole = timm_encoder(base.model, base.file, seed, base.package)
        encoder = with_language_tower(whole, base.fit.language_model, "finetuned")
    tower = encoder.model.visual
    projection = tower.head
    if not list(projection.parameters()):
        raise InputError(
            f"model '{base.model}' has no projection to fit: set timm_proj in its vision_cfg to linear or mlp"
        )
    tower.head = nn.Identity()
    features = trunk_features(encoder, tower.trunk.num_features, train_pairs, settings.train.state / "trunk")
    tower.head = projection
    own = base.fit.model_dump(exclude={"projection_lr", "language_model"})
    plan = Optimisation(**own, clip_gradient=1.0, image_tower="trained")
    model = LanguageClip(projection, encoder.model.text)
    model.logit_scale = encoder.model.logit_scale
    depends_on = [file_hash(train_pairs), whole.image_tower_hash(), repr(sorted(encoder.sidecar.architecture.items()))]
    rates = dict.fromkeys(("visual.", "text.projection.", "logit_scale"), base.fit.projection_lr / base.fit.lr)
    source = _source(settings, train_pairs, features, encoder, plan)
    return encoder, contrast(model, source, plan, settings, tracked, depends_on, rates)


def _source(
    settings: Settings, train_pairs: Path, features: dict[str, Vectors], encoder: Encoder, plan: Optimisation
) -> TableSource:
    """Batches in which the trunk's features stand for images: the projection is all that is left of the tower."""
    rows = train_rows(train_pairs)
    ids, image_ids, distinct = rows["id"].tolist(), rows["image_id"].tolist(), np.stack(list(features.values()))
    images = Images(ids, image_ids, train_pairs, encoder.sidecar.image_size, distinct)
    # An epoch visits an image once, with one of its captions: others of the same image would be false negatives.
    source = pairs_source(rows, images, encoder.tokenizer, plan, settings, "images")
    place = {image: row for row, image in enumerate(features)}
    shown = np.array([place[image] for image in image_ids], dtype=np.int64)
    return replace(source, features=None, pixels=torch.from_numpy(distinct), images={"image": shown})


def trunk_features(encoder: Encoder, width: int, pairs: Path, folder: Path) -> dict[str, Vectors]:
    """Features `[width]` of the distinct images of `pairs` by their ids; blocks are kept in `folder`.

    Args:
        encoder: its image tower has no projection.

    Raises:
        InputError: an image cannot be decoded, its feature is not finite, or a block in `folder` is damaged.
    """
    seeing = Encoder(encoder.model, encoder.sidecar.model_copy(update={"embed_dim": width}), encoder.tokenizer)
    folder = folder / content_hash(seeing.image_tower_hash(), code_hash("embed"))[:16]
    found: dict[str, Vectors] = {}
    with bar("look at images", PAIRS.count(pairs), "pair") as progress, Pictures() as pictures:
        for block in PAIRS.blocks(pairs, PICTURE, rows=_BLOCK):
            rows = {row["image_id"]: row for row in block.to_pylist() if row["image_id"] not in found}
            new = {image: pictures.one(row) for image, row in rows.items()}
            if new:
                found |= zip(new, _kept(seeing, new, folder / f"{content_hash(*new)[:32]}.npy"), strict=True)
            progress.update(block.num_rows)
    return found


def _kept(encoder: Encoder, images: dict[str, bytes], path: Path) -> Vectors:
    """Features of `images`, from `path`, where they are put first if they are not there."""
    if not path.is_file():
        names = list(images)
        features = encoder.image_features(list(images.values()), _BATCH, names=names)
        require_finite(features, encoder.sidecar.name, "picture", names)
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, features)
    return mapped_array(path, "delete it and run the stage again, which makes it anew")
