"""Benchmarks, published and of the project's own data: files, protocols, and metrics with direction and tie rule."""
