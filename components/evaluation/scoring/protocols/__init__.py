"""Scoring mathematics that benchmarks share, as pure functions on arrays."""
