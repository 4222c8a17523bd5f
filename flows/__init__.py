"""Prefect flows and tasks. They only call components/; nothing is computed here."""
