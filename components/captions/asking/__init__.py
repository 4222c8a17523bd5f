"""Putting questions to an engine: what is asked, which worker asks it, and how the answers reach the store."""
