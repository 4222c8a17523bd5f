"""Published test sets: readers of their files, for benchmarks that score and for the check that none of it trains."""
