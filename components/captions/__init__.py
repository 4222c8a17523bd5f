"""Captions written by a language model: prompt tasks, engines, the store of generations."""
