"""Layouts of labelled images; each file exports `LAYOUT`."""
