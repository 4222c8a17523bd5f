"""Contrastive training of a base: the training loop with CLIP's loss on the pairs of the training split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from components.base.naming import Naming
from components.core.compute.checkpoint import Checkpoints
from components.core.compute.hardware import pick_autocast, pick_device
from components.core.files import content_hash
from components.core.provenance import code_hash
from components.core.records import PAIRS
from components.core.settings import Settings
from components.encoders.adapter.tokens import Tokenizer
from components.methods.contract.losses import Features, info_nce
from components.methods.contract.method import Visits
from components.methods.contract.optimisation import Optimisation
from components.tracking import TrackedRun
from components.training.engine.loop import fit
from components.training.engine.meter import report_to
from components.training.engine.run import Engine, Run
from components.training.rows.batches import Rows, Source, TableSource
from components.training.rows.sources import Images, Wanted, table_source


def train_rows(train_pairs: Path) -> pd.DataFrame:
    """A row for each pair: `id`, `image_id`, `caption`."""
    rows: pd.DataFrame = PAIRS.read(train_pairs, ["id", "image_id", "caption"]).to_pandas()
    return rows


def pairs_source(
    rows: pd.DataFrame,
    images: Images,
    tokenizer: Tokenizer,
    plan: Optimisation,
    settings: Settings,
    visits: Visits,
    labels: Mapping[str, Rows] | None = None,
) -> TableSource:
    """Batches of images with their captions, and their rows' labels where there are any."""
    wanted, cache, seed = (
        Wanted(frozenset({"image", "caption"}), {}),
        settings.train.state / "tokens",
        settings.train.seed,
    )
    return table_source(rows, wanted, images, tokenizer, plan.batch_size, seed, cache, visits=visits, labels=labels)


def contrast(
    model: Any,
    source: Source,
    plan: Optimisation,
    settings: Settings,
    tracked: TrackedRun,
    depends_on: list[str],
    rates: Mapping[str, float] | None = None,
    naming: Naming | None = None,
) -> Checkpoints:
    """Train all of `model`; the checkpoints are returned so that the caller clears them once the encoder is saved.

    Args:
        model: has `encode_image`, a text side and a `logit_scale`.
        depends_on: what the weights depend on besides the settings, so that only the run's own checkpoints fit.
        rates: as in `Run`.
        naming: a second loss, whose tensors train beside the model and are not kept.
    """
    base, train = settings.base, settings.train
    device = pick_device(train.device)
    fingerprint = content_hash(base.model_dump_json(), str(train.seed), train.precision, *depends_on)
    checkpoints = Checkpoints(train.state / f"base-{fingerprint[:16]}", code=code_hash("base"))
    model.to(device)
    extra = nn.Module() if naming is None else naming.to(device)
    beside = {f"extra.{name}": weights for name, weights in extra.named_parameters()}
    fit(
        Run(
            title="base",
            model=model,
            trained=dict(model.named_parameters()) | beside,
            losses=lambda features: clip_loss(features) | ({} if naming is None else naming(features)),
            extra=extra,
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
    """CLIP's loss."""
    return {"contrastive": info_nce(features["image"], features["caption"], features.scale)}
