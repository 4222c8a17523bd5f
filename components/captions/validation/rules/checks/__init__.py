"""Checks of synthesised texts, one kind per file."""
