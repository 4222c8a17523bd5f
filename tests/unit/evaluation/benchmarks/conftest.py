"""Fixtures of encoders that are scored without a model."""

from tests.support.evaluation_fixtures import folders, make_settings, stub, vectors  # noqa: F401
