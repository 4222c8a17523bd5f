"""Shards in the layout of img2dataset, on disk or in S3: which there are, and their samples as they lie there."""
