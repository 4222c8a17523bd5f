"""Scores of encoders: metrics, benchmarks, the `evaluate` and `compare` stages."""
