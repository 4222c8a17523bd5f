"""Checks of synthesised captions: which rows may be trained on, and the reasons for rejecting the others."""
