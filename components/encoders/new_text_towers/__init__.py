"""Encoders whose text tower starts anew beside an existing image tower."""
