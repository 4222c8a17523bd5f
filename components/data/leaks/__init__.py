"""Keeps published test sets out of training: keys of their pictures and texts, the guard, and its counts."""
