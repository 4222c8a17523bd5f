"""Experiments: benchmarks that each reproduce one table of a paper.

An experiment may train its own model or call a judge. No other package imports experiments; the registry of published
benchmarks finds the `BENCHMARKS` of each file by name. `parts` has the modules that they use.
"""
