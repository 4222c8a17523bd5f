"""Readers of the annotation files that benchmarks are published in."""
