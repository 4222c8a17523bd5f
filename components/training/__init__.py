"""The training loop of all methods, its rows and its held-out data."""
