"""The sweep reports what it could do although one system is unavailable, and creates its automation once."""

from __future__ import annotations

import json

import pytest

import flows.sweep
from components.core.system.errors import InputError
from components.registry.sweep import SweepFinding
from flows.sweep import AUTOMATION, sweep


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server", "project")
def test_one_unavailable_system_does_not_stop_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect import get_client
    from prefect.artifacts import Artifact

    def fail(*_: object) -> list[SweepFinding]:
        raise InputError("the database is unavailable")

    finding = SweepFinding("registry", "m@champion is no version", "the gate made version 1 champion", "none")
    monkeypatch.setattr(flows.sweep, "sweep_runs", fail)
    monkeypatch.setattr(flows.sweep, "sweep_aliases", lambda _model: [finding])
    with get_client(sync_client=True) as client:
        for dry_run, automations in ((True, 0), (False, 1), (False, 1)):
            with pytest.raises(InputError, match="the database is unavailable"):
                sweep(dry_run=dry_run)
            assert len(client.read_automations_by_name(AUTOMATION)) == automations
    table = Artifact.get("sweep")
    assert table is not None
    assert table.description == "Sweep: 1 findings."
    assert [row["subject"] for row in json.loads(str(table.data))] == [finding.subject]
