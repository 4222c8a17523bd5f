"""Cleans up after dead processes: ends their MLflow runs. Also reports a champion alias that was moved by hand."""
