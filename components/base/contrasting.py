"""Contrastive training of a base: the training loop with CLIP's loss on the pairs of the training split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.hardware import pick_autocast, pick_device
from components.core.files import content_hash
from components.core.records import PAIRS
from components.core.settings import Settings
from components.encoders.adapter.tokens import Tokenizer
from components.methods.contract import losses
from components.methods.contract.features import Features
from components.methods.contract.optimisation import Optimisation
from components.methods.contract.visits import Visits
from components.tracking import TrackedRun
from components.training.engine.loop import fit
from components.training.engine.meter import report_to
from components.training.engine.run import Engine, Run
from components.training.rows.batches import Source, TableSource
from components.training.rows.sources import Images, Wanted, table_source


def train_rows(train_pairs: Path) -> pd.DataFrame:
    """A row for each pair: `id`, `image_id`, `caption`."""
    rows: pd.DataFrame = PAIRS.read(train_pairs, ["id", "image_id", "caption"]).to_pandas()
    return rows


def twin_rows(twins: Path) -> pd.DataFrame:
    """A row for each pair with its twin: `id`, `image_id`, `caption`, and the twin's `other_...`."""
    both = train_rows(twins)
    first, second = (both.iloc[start::2].reset_index(drop=True) for start in (0, 1))
    return first.join(second.add_prefix("other_"))


def pairs_source(
    rows: pd.DataFrame, images: Images, tokenizer: Tokenizer, plan: Optimisation, settings: Settings, visits: Visits
) -> TableSource:
    """Batches of images with their captions; pairs with twins are in the batch together with them."""
    columns, size = {"image", "caption"}, plan.batch_size
    if "other_id" in rows:
        columns, size = columns | {"other_image", "other_caption"}, max(1, size // 2)
    wanted, cache = Wanted(frozenset(columns), {}), settings.train.state / "tokens"
    return table_source(rows, wanted, images, tokenizer, size, settings.train.seed, cache, visits=visits)


def contrast(
    model: Any,
    source: Source,
    plan: Optimisation,
    settings: Settings,
    tracked: TrackedRun,
    depends_on: list[str],
    rates: Mapping[str, float] | None = None,
) -> Checkpoints:
    """Train all of `model`; the checkpoints are returned so that the caller clears them once the encoder is saved.

    Args:
        model: has `encode_image`, a text side and a `logit_scale`.
        depends_on: what the weights depend on besides the settings, so that only the run's own checkpoints fit.
        rates: as in `Run`.
    """
    base, train = settings.base, settings.train
    device = pick_device(train.device)
    fingerprint = content_hash(base.model_dump_json(), str(train.seed), train.precision, *depends_on)
    checkpoints = Checkpoints(train.state / f"base-{fingerprint[:16]}")
    model.to(device)
    fit(
        Run(
            title="base",
            model=model,
            trained=dict(model.named_parameters()),
            losses=clip_loss,
            source=source,
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
            rates=rates or {},
        )
    )
    model.to("cpu")
    return checkpoints


def clip_loss(features: Features) -> dict[str, Tensor]:
    """CLIP's loss over the pairs of a batch, and over their twins where it has some (Radford et al. 2021, figure 3)."""
    image, caption = features["image"], features["caption"]
    if "other_image" not in features.columns:
        return {"contrastive": losses.info_nce(image, caption, features.scale)}
    twin, its_caption = features["other_image"], features["other_caption"]
    parts = (
        losses.contrast(image, caption, its_caption, scale=features.scale),
        losses.contrast(twin, its_caption, caption, scale=features.scale),
        losses.contrast(caption, image, twin, scale=features.scale),
        losses.contrast(its_caption, twin, image, scale=features.scale),
    )
    return {"contrastive": torch.stack(parts).mean()}
