"""An alias that somebody moved past the gate is told; what the gate and a rollback do is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.registry.champion import rollback
from components.registry.model import CHAMPION
from components.registry.promotion import promote
from components.sweeping.moved_aliases import sweep_aliases
from components.tracking import make_client

MODEL = "text-encoder"


def test_a_champion_made_by_hand_is_told(project: Any) -> None:
    assert sweep_aliases(MODEL) == []
    project.add("paraclip", 2, 0.5)
    promote(project.settings)
    project.add("paraclip", 3, 0.6)
    decision = promote(project.settings)
    assert decision.version == "2"
    assert sweep_aliases(MODEL) == []
    rollback(project.settings)
    assert sweep_aliases(MODEL) == []
    client = make_client()
    client.set_registered_model_alias(MODEL, CHAMPION, "2")
    (found,) = sweep_aliases(MODEL)
    assert found.subject == "text-encoder@champion is version 2"
    assert "version 1" in found.reason
    client.delete_registered_model_alias(MODEL, CHAMPION)
    assert [found.subject for found in sweep_aliases(MODEL)] == ["text-encoder@champion is no version"]


def test_looking_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert sweep_aliases(MODEL) == []
    assert not Path("mlruns").exists()
