"""Profiles, containers and the local stack."""
