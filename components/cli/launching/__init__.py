"""Starts stages where a scheduler runs them: a file from a template, its submission, and the part of each machine."""
