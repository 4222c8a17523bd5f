"""Batch sizes for a folder of few pictures: with its profile's own an epoch would have no batch."""

from __future__ import annotations

from typing import Any

from components.cli.survey import Survey
from components.core.settings import Settings

_STEPS = 4
"""Of an epoch, at least."""
_FEWEST = 2
"""Rows without which a contrastive batch compares nothing."""


def fitting_batches(found: Survey, settings: Settings) -> dict[str, Any]:
    """The batch sizes, in the blocks of params.yaml, that must be smaller than those of `settings` for this folder.

    Paraphrases are counted as if no more were accepted than `validate.min_accepted_share` asks for.
    """
    described, counts = found.described, found.counts
    drawn = sum(getattr(counts, split) for split in ("val", "test") if not described.images.get(split))
    images = described.images.get("train", 0) - drawn
    asked = images if settings.synthesize.tasks["paraphrase_1"].one_per_image else counts.train
    content: dict[str, Any] = {}
    fit = settings.base.fit
    if fit is not None and (size := _batch(images)) < fit.batch_size:
        content["base"] = {"fit": {"batch_size": size}}
    size = _batch(int(settings.validation.min_accepted_share * asked))
    if size < settings.methods["paraclip"]["batch_size"]:
        content["methods"] = {"paraclip": {"batch_size": size}}
    return content


def _batch(rows: int) -> int:
    """The largest power of two of which an epoch of so many rows has enough."""
    return max(_FEWEST, 1 << max(0, (rows // _STEPS).bit_length() - 1))
