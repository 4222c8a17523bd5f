"""Parquet tables, their records, and the files and folders of the pipeline."""

NEIGHBOUR = "neighbour."
"""Prefix of the name of a column with values of a row's neighbour."""
