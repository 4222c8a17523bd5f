"""Prefect flows and tasks. They only call components/; nothing is computed here."""

import os

# Prefect reads it at its import.
os.environ.setdefault("DO_NOT_TRACK", "1")
