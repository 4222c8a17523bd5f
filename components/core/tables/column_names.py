"""Names of columns of a batch, in a separate file because the training loop must not import tables."""

from __future__ import annotations

NEIGHBOUR = "neighbour."
"""Prefix of the name of a column with values of a row's neighbour."""
