"""The most changed queries of an evaluation, and what both encoders gained on average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from components.core.errors import InputError
from components.core.settings import Settings
from components.encoders.adapter.encoder import Encoder
from components.evaluation import evaluate
from components.evaluation.results import Folders
from components.explorer.changed import changed, scored
from tests.support.evaluation_fixtures import folders, make_settings, stub, vectors  # noqa: F401


@pytest.fixture
def reports(
    stub: Any,  # noqa: F811
    vectors: dict[str, Sequence[float]],  # noqa: F811
    folders: Folders,  # noqa: F811
    make_settings: Callable[..., Settings],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> list[Any]:
    """Two encoders of which the second finds other pictures for a paraphrase."""
    found = []
    for name, changes in (("base", {}), ("tuned", {"d paraphrase": vectors["a paraphrase"]})):
        made = stub(vectors | changes, name)
        monkeypatch.setattr(Encoder, "load", staticmethod(lambda _folder, made=made: made))
        found.append(evaluate.run(make_settings(), name, folders))
    return found


def test_encoders_are_known_by_their_weights(reports: list[Any], folders: Folders) -> None:  # noqa: F811
    assert scored(folders, ["weights of tuned", "others"]) == [reports[1], None]


def test_changes_in_order(
    reports: list[Any],
    folders: Folders,  # noqa: F811
    make_settings: Callable[..., Settings],  # noqa: F811
) -> None:
    found = changed(folders, reports, "ao", 5, make_settings().evaluate)
    assert (found.metric, found.first, found.second) == ("paraphrased_retrieval/ao_at_2", "base", "tuned")
    assert found.best == []
    (lost,) = found.worst
    assert (lost.query, lost.before, lost.after) == ("d query", 1.0, 0.0)
    gains = {gain.tier: gain for gain in found.gains}
    assert list(gains) == ["all", "common", "unseen"]
    assert gains["all"].value == pytest.approx(-1 / 3)
    assert gains["common"].value == pytest.approx(-1 / 2)
    assert gains["unseen"].value == 0
    assert gains["all"].low <= gains["all"].value <= gains["all"].high
    turned = changed(folders, reports[::-1], "ao", 5, make_settings().evaluate)
    assert [one.query for one in turned.best] == ["d query"]


def test_what_cannot_be_compared_is_refused(
    reports: list[Any],
    folders: Folders,  # noqa: F811
    make_settings: Callable[..., Settings],  # noqa: F811
) -> None:
    with pytest.raises(InputError, match="metric 'f1' is unknown"):
        changed(folders, reports, "f1", 5, make_settings().evaluate)
    other = reports[1].model_copy(update={"data_hash": "other"})
    with pytest.raises(InputError, match="on other data"):
        changed(folders, [reports[0], other], "ao", 5, make_settings().evaluate)
