"""Measurements of every answer."""
