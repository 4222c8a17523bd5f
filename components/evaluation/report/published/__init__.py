"""Results on published benchmarks next to the papers' figures."""
