"""Checks against the embedded world's own facts and sentences."""
