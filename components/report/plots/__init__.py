"""Plots of a comparison."""
