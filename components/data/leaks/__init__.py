"""Keeps published test sets out of training: what they hold, what is dropped for it, and who is told."""
