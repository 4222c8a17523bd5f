"""The alias whose version is served, and what it points at."""

from __future__ import annotations

from dataclasses import dataclass

from components.core.errors import InputError
from components.registry.aliases import local_aliases
from components.registry.encoder_names import ALIAS


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

    def version(self) -> str | None:
        """The version that it points at now, if it points at any."""
        aliases = local_aliases(self.model)
        if aliases is not None:
            return aliases.get(self.alias)
        from components.registry.model import find_alias
        from components.tracking import make_client

        found = find_alias(make_client(), self.model, self.alias)
        return None if found is None else str(found.version)

    def check(self) -> None:
        """Refuse an alias that points nowhere, as far as a local registry tells.

        Raises:
            InputError: it does.
        """
        aliases = local_aliases(self.model)
        if aliases is not None and self.alias not in aliases:
            raise self.missing()

    def missing(self) -> InputError:
        """What both ways of looking say."""
        return InputError(f"{self.model} has no alias '{self.alias}': `cliptune history` shows what there is")
