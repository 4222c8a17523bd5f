"""Errors, progress, processes and the project folder. No result of a stage depends on this package."""
