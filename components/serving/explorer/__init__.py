"""The explorer: a page to compare the results of encoders."""
