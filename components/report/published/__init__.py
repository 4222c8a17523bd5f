"""Results on published benchmarks beside the papers' figures."""
