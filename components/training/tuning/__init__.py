"""Searches on the validation split: values of a method, and shares of a mix."""
