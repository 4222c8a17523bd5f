"""Batches streamed from webdataset shards."""
