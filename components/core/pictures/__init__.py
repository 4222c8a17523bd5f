"""Encoded pictures, their storage (files, shards, S3) and their embeddings on disk."""
