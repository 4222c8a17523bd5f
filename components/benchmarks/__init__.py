"""Benchmarks, embedded and published: the files they need, their protocols, and metrics with direction and tie rule."""
