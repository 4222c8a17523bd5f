"""The explorer: a page on which people compare what encoders find."""
