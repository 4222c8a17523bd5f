"""Prefect flows: wiring only, nothing here computes."""
