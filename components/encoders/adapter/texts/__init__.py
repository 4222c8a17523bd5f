"""Texts to token ids and on to features."""
