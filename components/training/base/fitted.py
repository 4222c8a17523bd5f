"""Fits a language model as text tower to a frozen image tower of timm's, with CLIP's loss.

The features of the image tower's trunk are computed once and kept in `train.checkpoint_dir` in blocks, so that a killed
stage resumes after the last whole block. The projection of these features, the language model and its projection train.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.devices import pick_device
from components.core.compute.provenance import code_hash, path_hash
from components.core.pictures.stored_pictures import PICTURE, Pictures
from components.core.settings import Settings
from components.core.system.errors import InputError, prefixed_errors
from components.core.system.progress import bar
from components.core.tables.arrays import mapped_array
from components.core.tables.files import atomic_file, content_hash, file_hash
from components.core.tables.records import PAIRS
from components.core.tracking import TrackedRun
from components.encoders.adapter.encoder import Encoder, Vectors
from components.encoders.adapter.language_tower import LanguageClip, folder_of
from components.encoders.embeddings import require_finite
from components.training.base.contrastive import contrast, train_rows
from components.training.base.published import timm_encoder
from components.training.methods.contract.method import Optimisation
from components.training.new_text_towers import with_language_tower
from components.training.rows.batches import BatchPlan, CachedFeatures, DecodedImages, TableSource
from components.training.rows.sources import TableImages, table_source

_BLOCK = 1024
"""Pairs per file of features."""
_BATCH = 32
"""Images per pass through the trunk."""


def fit_towers(settings: Settings, train_pairs: Path, tracked: TrackedRun) -> tuple[Encoder, Checkpoints]:
    """Train `base.model` with a language model as text tower on `train_pairs` with the settings of `base.fit`."""
    base, seed, device = settings.base, settings.train.seed, pick_device(settings.device)
    assert base.fit is not None
    with prefixed_errors("params.yaml: base"):
        whole = timm_encoder(base.model, base.file, seed, base.package)
        encoder = with_language_tower(whole, base.fit.language_model, "finetuned")
    tower = encoder.model.visual
    projection = tower.head
    if not list(projection.parameters()):
        raise InputError(
            f"model '{base.model}' has no projection to fit: set timm_proj in its vision_cfg to linear or mlp"
        )
    tower.head = nn.Identity()
    encoder.to(device)
    features = trunk_features(encoder, tower.trunk.num_features, train_pairs, settings.train.checkpoint_dir / "trunk")
    encoder.to("cpu")
    tower.head = projection
    own = base.fit.model_dump(exclude={"projection_lr", "language_model"})
    plan = Optimisation(**own, clip_gradient=1.0, image_tower="trained")
    model = LanguageClip(projection, encoder.model.text)
    model.logit_scale, model.logit_bias = encoder.model.logit_scale, encoder.model.logit_bias
    named = base.fit.language_model
    depends_on = [path_hash(folder_of(named))] if named else []
    depends_on += [file_hash(train_pairs), whole.image_tower_hash(), repr(sorted(encoder.sidecar.architecture.items()))]
    rates = dict.fromkeys(("visual.", "text.projection.", "logit_scale"), base.fit.projection_lr / base.fit.lr)
    source = _source(settings, train_pairs, features, encoder, plan)
    return encoder, contrast(model, source, plan, settings, tracked, depends_on, rates)


def _source(
    settings: Settings, train_pairs: Path, features: dict[str, Vectors], encoder: Encoder, plan: Optimisation
) -> TableSource:
    """Batches with the trunk's features as pixels: the tower that trains is only the projection."""
    rows, distinct = train_rows(train_pairs), np.stack(list(features.values()))
    ids, image_ids = rows["id"].tolist(), rows["image_id"].tolist()
    images = TableImages(ids, image_ids, train_pairs, encoder.sidecar.preparation, CachedFeatures(distinct))
    # An epoch visits an image once, with one of its captions: others of the same image would be false negatives.
    batches = BatchPlan(frozenset({"image", "caption"}), plan.batch_size, settings.train.seed)
    source = table_source(rows, images, batches, encoder.tokenizer, settings.train.checkpoint_dir / "tokens")
    place = {image: row for row, image in enumerate(features)}
    shown = np.array([place[image] for image in image_ids], dtype=np.int64)
    return replace(source, shown=DecodedImages(torch.from_numpy(distinct)), images={"image": shown})


def trunk_features(encoder: Encoder, width: int, pairs: Path, folder: Path) -> dict[str, Vectors]:
    """Features `[width]` of the distinct images of `pairs` by image id; `folder` keeps them in blocks.

    Args:
        encoder: its image tower has no projection.
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
    """Features of `images`, read from the file `path`, which is created if it is missing."""
    if not path.is_file():
        names = list(images)
        features = encoder.image_features(list(images.values()), _BATCH, names=names)
        require_finite(features, encoder.sidecar.name, "picture", names)
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, features)
    return mapped_array(path, "delete it and run the stage again")
