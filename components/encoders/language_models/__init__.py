"""Causal language models in this process."""
