"""Labelled images in the layouts in which they are published, read as they lie."""
