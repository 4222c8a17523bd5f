"""Checks against the synthetic dataset's own facts and sentences."""
