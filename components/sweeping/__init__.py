"""Cleans up what dead processes left behind: MLflow runs. A dry run only reports."""
