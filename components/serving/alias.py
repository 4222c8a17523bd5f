"""The alias whose version is served, and what it points at."""

from __future__ import annotations

from dataclasses import dataclass

from components.core.errors import InputError
from components.registry.encoder_names import ALIAS
from components.registry.model import find_alias
from components.tracking import explained, make_client, nothing_tracked


@dataclass(frozen=True)
class Alias:
    """A registered model and one of its aliases, such as `text-encoder` and `champion`."""

    model: str
    alias: str

    @staticmethod
    def of(name: str) -> Alias | None:
        """The alias that an encoder's name means, if it means one."""
        found = ALIAS.match(name)
        return Alias(found["model"], found["alias"]) if found and found["alias"] else None

    @explained()
    def version(self) -> str | None:
        """The version that it points at now, if it points at any."""
        found = None if nothing_tracked() else find_alias(make_client(), self.model, self.alias)
        return None if found is None else str(found.version)

    def missing(self) -> InputError:
        """The error where it points nowhere."""
        return InputError(f"{self.model} has no alias '{self.alias}': `cliptune history` shows what there is")
