"""Gives a base encoder a text tower of random weights."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from components.encoders.adapter.architecture import build
from components.encoders.adapter.encoder import Encoder


def with_random_weights(base: Encoder) -> Encoder:
    """The base encoder with a text side and logit scale of the same structure and random weights."""
    with TemporaryDirectory() as folder:
        base.save_text_files(Path(folder))
        model = build(base.sidecar.architecture, Path(folder))
    model.visual = base.model.visual
    return Encoder(model.eval(), base.sidecar, base.tokenizer)
