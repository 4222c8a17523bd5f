"""Cleans up what dead processes left behind: MLflow runs and leases. A dry run only reports."""
