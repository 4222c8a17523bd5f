"""Stage `evaluate`, and runs on published benchmarks: scoring, results with intervals, both on disk."""
