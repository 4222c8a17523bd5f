"""Tells when the champion is another version than the gate made it: an alias that somebody moved by hand."""

from __future__ import annotations

from components.registry import model as versions
from components.sweeping.finding import Finding
from components.tracking import explained, make_client, nothing_tracked


@explained()
def sweep_aliases(model: str) -> list[Finding]:
    """What is wrong with the alias `champion`; nothing is changed, because a person may have had a reason."""
    if nothing_tracked():
        return []
    client = make_client()
    made = [found for found in client.search_model_versions(f"name = '{model}'") if versions.PROMOTED in found.tags]
    if not made:
        return []
    last = max(made, key=lambda found: found.tags[versions.PROMOTED])
    champion = versions.find_alias(client, model, versions.CHAMPION)
    now = "no version" if champion is None else f"version {champion.version}"
    if champion is not None and str(champion.version) == str(last.version):
        return []
    decided = f"the gate made version {last.version} champion at {last.tags[versions.PROMOTED][:19]}"
    put_back = f"told; set the alias back in MLflow, or have the gate judge against {now}: `cliptune promote`"
    return [Finding("registry", f"{model}@{versions.CHAMPION} is {now}", decided, put_back)]
