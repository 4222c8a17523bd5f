"""Tokenizers, token batches and text towers."""
