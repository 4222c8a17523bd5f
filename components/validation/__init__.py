"""Checks of the synthesised captions: what training may see, and why the rest may not."""
