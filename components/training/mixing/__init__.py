"""Encoders made of the weights of others."""
