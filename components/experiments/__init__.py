"""Experiments: benchmarks that each reproduce one table of a paper.

The rules are looser than for the product: an experiment may train its own model or call a judge, and may be dropped
without loss to the product. No other package imports experiments; the registry of published benchmarks finds the
`BENCHMARKS` of each file by name. `parts` has the modules behind them.
"""
