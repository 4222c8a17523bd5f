"""Scenes, their words, and sentences that describe them."""
