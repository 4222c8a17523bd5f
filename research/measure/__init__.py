"""Measurements behind the speeds that README and docs show: `python -m research.measure.<name> --help`.

Each runs a widely used program on the same work, compares the results, and prints one JSON object as its last line.
"""
