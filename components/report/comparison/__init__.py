"""Encoders side by side: values, differences, words for them."""
