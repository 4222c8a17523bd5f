"""Builds encoders whose text tower is new and whose image tower is the base's."""
