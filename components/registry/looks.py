"""Counts how often one test set has judged candidates: at every look an encoder that gained nothing could pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from components.core.tables.files import content_hash
from components.registry import model as versions

if TYPE_CHECKING:
    from mlflow import MlflowClient

_TAG = "looks."
"""Start of a registered model's tags, followed by the start of the test data's hash: hashes of judged encoders."""
_SHORT = 12


def looks_at(client: MlflowClient, model: str, data_hash: str, judged: Iterable[str], count: bool) -> int:
    """The number of this look at test data; the same candidates against the same champion add none.

    Args:
        judged: hashes of the weights of all candidates and of the encoder that they must beat.
        count: keep it, with the registered model, which is made where there is none.
    """
    tag, this = _TAG + data_hash[:_SHORT], content_hash(*sorted(judged))[:_SHORT]
    known = [*filter(None, versions.tags_of_model(client, model).get(tag, "").split(" "))]
    if this in known:
        return known.index(this) + 1
    if count:
        versions.create_model(client, model)
        client.set_registered_model_tag(model, tag, " ".join([*known, this]))
    return len(known) + 1
