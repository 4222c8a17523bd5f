"""Versions of the generation store, in the order of their numbers."""
