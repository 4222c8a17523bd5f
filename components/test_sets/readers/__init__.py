"""Readers of published test sets. Each file exports `TEST_SETS`, the sets whose content training must not contain."""
