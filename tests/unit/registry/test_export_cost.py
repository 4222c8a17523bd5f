from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.settings import Settings
from components.evaluation.results import Folders
from components.registry import export_cost
from components.registry.export_cost import ao_cost
from tests.support.evaluation_fixtures import folders, make_settings, stub, vectors  # noqa: F401


@pytest.fixture(autouse=True)
def _settings(make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(export_cost, "load_settings", make_settings)


def test_tells_what_rounded_texts_cost(
    stub: Any,  # noqa: F811
    vectors: dict[str, Sequence[float]],  # noqa: F811
    folders: Folders,  # noqa: F811
) -> None:
    encoder = stub(vectors)
    assert (ao_cost(encoder, encoder.embed_texts, folders) or "").startswith("AO@2 58.3 becomes 58.3 (+0.0 [")
    # The paraphrase of d now finds what that of a does: nothing of what the query of d finds.
    rounded = stub(vectors | {"d paraphrase": vectors["a paraphrase"]})
    assert (ao_cost(encoder, rounded.embed_texts, folders) or "").startswith("AO@2 58.3 becomes 25.0 (-33.3 [")


def test_without_test_data_nothing_is_told(stub: Any, folders: Folders, tmp_path: Path) -> None:  # noqa: F811
    assert ao_cost(stub({}), stub({}).embed_texts, replace(folders, evaluation=tmp_path / "none")) is None
