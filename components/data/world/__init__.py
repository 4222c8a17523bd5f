"""The embedded world: drawn scenes with captions in several registers."""
