"""Parquet tables, their records, and the files and folders of the pipeline."""
