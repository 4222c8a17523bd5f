"""How columns of a batch are called; in a file of its own, so that the training loop needs no tables for it."""

from __future__ import annotations

NEIGHBOUR = "neighbour."
"""Stands before the name of a column that holds what belongs to a row's neighbour."""
