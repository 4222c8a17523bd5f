"""Choosing settings of methods and mixes by their results on the validation split."""
