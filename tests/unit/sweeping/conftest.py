"""The project folder of the registry."""

from tests.unit.registry.conftest import project  # noqa: F401
