"""Cleans up what dead processes left behind: MLflow runs, DVC locks, leases. A dry run only reports."""
