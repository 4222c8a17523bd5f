"""Stage `evaluate` and runs of published benchmarks: scores, and results with intervals on disk."""
