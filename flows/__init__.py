"""Prefect flows and tasks. They only call components/; nothing is computed here."""

import os

# Prefect asks for it when it is imported.
os.environ.setdefault("DO_NOT_TRACK", "1")
