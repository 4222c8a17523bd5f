"""Synthetic pictures: drawn scenes with captions in several registers."""
