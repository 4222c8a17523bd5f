"""Figures of the papers from stored results."""
