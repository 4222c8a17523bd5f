"""Engines that answer requests, and the store of their answers."""
