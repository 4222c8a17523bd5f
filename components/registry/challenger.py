"""Sets and removes the alias `challenger`, under which people try a version before it is promoted."""

from __future__ import annotations

from components.registry import model as versions
from components.registry.decision import Decision
from components.tracking import explained, make_client


@explained()
def withdraw(decision: Decision) -> bool:
    """Take the alias from the version with the weights that `decision` is about; says whether it had it."""
    client = make_client()
    version = versions.find_alias(client, decision.model, versions.CHALLENGER)
    if version is None or version.tags.get(versions.SHA_TAG) != decision.encoder_sha256:
        return False
    client.delete_registered_model_alias(decision.model, versions.CHALLENGER)
    return True
