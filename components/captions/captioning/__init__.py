"""Captions for pictures that have none, by a vision-language model."""
