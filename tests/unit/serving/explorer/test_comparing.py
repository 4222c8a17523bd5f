"""The compared lists are those of the index; the most changed queries are those of the evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from components.core.compute.metrics import average_overlap, jaccard_similarity
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.evaluation.scoring import evaluate
from components.evaluation.scoring.results import Folders
from components.serving.explorer.comparing import Explorer, changed, overlap, scored
from components.serving.explorer.server import Explored
from tests.support.exploring import PICTURES

Make = Callable[..., Settings]


@pytest.fixture
def explorer(explored: Explored) -> Explorer:
    return explored.explorer


def _ranked(explorer: Explorer, encoder: int, text: str) -> list[int]:
    features = explorer.encoders[encoder].encoder.embed_texts([text])
    similarity = features @ explorer.index.vector(np.arange(PICTURES)).T
    return [int(row) for row in np.argsort(-similarity[0], kind="stable")]


def test_lists_and_measures_equal_those_of_the_encoders(explorer: Explorer) -> None:
    found = explorer.compare("a dog", "one hound", 4)
    assert [side.encoder for side in found.sides] == ["base", "tuned"]
    for number, side in enumerate(found.sides):
        ranked = [_ranked(explorer, number, text)[:4] for text in ("a dog", "one hound")]
        assert [hit.row for hit in side.query] == ranked[0]
        assert [hit.row for hit in side.paraphrase] == ranked[1]
        lists = [np.array([rows]) for rows in ranked]
        assert side.ao == pytest.approx(average_overlap(*lists, 4)[0])
        assert side.js == pytest.approx(jaccard_similarity(*lists, 4)[0])
        assert {hit.row for hit in side.query if hit.both} == set(ranked[0]) & set(ranked[1])
        assert [hit.score for hit in side.query] == sorted((hit.score for hit in side.query), reverse=True)


def test_moves_are_against_the_first_encoder(explorer: Explorer) -> None:
    base, tuned = explorer.compare("a dog", "", 4).sides
    first, second = (_ranked(explorer, number, "a dog") for number in range(2))
    assert [hit.move for hit in tuned.query] == [first.index(row) - place for place, row in enumerate(second[:4])]
    assert {hit.row for hit in tuned.query if hit.new} == set(second[:4]) - set(first[:4])
    assert {hit.row for hit in tuned.lost} == set(first[:4]) - set(second[:4])
    assert (base.lost, tuned.paraphrase, tuned.ao) == ([], [], None)


def test_filters_by_column_and_words(explorer: Explorer) -> None:
    assert explorer.filters()["group"] == ["even", "odd"]
    odd = explorer.compare("a dog", "", 20, explorer.filtered({"group": "odd"}))
    assert {hit.name for hit in odd.sides[0].query} == {f"{number:02d}.png" for number in range(1, PICTURES, 2)}
    both = explorer.filtered({"group": "odd"}, "PICTURE 1")
    assert both is not None
    assert len(explorer.compare("a dog", "", 20, both).sides[0].query) == 2
    assert explorer.filtered({}) is None
    with pytest.raises(InputError, match="no column 'size'"):
        explorer.filtered({"size": "1"})
    nothing = explorer.compare("a dog", "one hound", 4, explorer.filtered({"group": "neither"}))
    assert [(side.query, side.ao) for side in nothing.sides] == [([], 0.0), ([], 0.0)]
    assert overlap([1, 2], [1, 2], 10) == (1.0, 1.0)


def test_similar_pictures_leave_out_the_picture_itself(explorer: Explorer) -> None:
    similarity = explorer.index.vector([3]) @ explorer.index.vector(np.arange(PICTURES)).T
    expected = [row for row in np.argsort(-similarity[0], kind="stable").tolist() if row != 3][:5]
    found = explorer.similar(3, 5)
    assert [hit.row for hit in found] == expected
    assert found[0].score == pytest.approx(float(similarity[0, expected[0]]), abs=1e-6)


def test_images_found_by_all_wordings_are_marked(explorer: Explorer) -> None:
    texts = ["a dog", "one hound", "the puppy"]
    for number, lists in enumerate(explorer.wordings(texts, 5)):
        ranked = [_ranked(explorer, number, text)[:5] for text in texts]
        assert [[hit.row for hit in hits] for hits in lists] == ranked
        shared = set(ranked[0]) & set(ranked[1]) & set(ranked[2])
        assert all({hit.row for hit in hits if hit.both} == shared for hits in lists)


def test_cached_texts_are_dropped_only_after_use(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.serving.explorer.comparing._KEPT", 3)
    explorer.wordings(["1", "2", "3", "4", "5"], 4)
    explorer.compare("a dog", "", 4)
    found = explorer.compare("a dog", "one hound", 4)
    assert [hit.row for hit in found.sides[0].query] == _ranked(explorer, 0, "a dog")[:4]
    assert len(explorer._features) == 3


@pytest.fixture
def reports(
    stub: Any, vectors: Any, folders: Folders, make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> list[Any]:
    """Two encoders of which the second finds other pictures for a paraphrase."""
    found = []
    for name, changes in (("base", {}), ("tuned", {"d paraphrase": vectors["a paraphrase"]})):
        made = stub(vectors | changes, name)
        monkeypatch.setattr(Encoder, "load", staticmethod(lambda _folder, made=made: made))
        found.append(evaluate.run(make_settings(), name, folders))
    return found


def test_the_most_changed_queries_and_gains_per_tier(reports: list[Any], folders: Folders, make_settings: Make) -> None:
    assert scored(folders, ["weights of tuned", "others"]) == [reports[1], None]
    found = changed(folders, reports, "ao", 5, make_settings().evaluate)
    assert (found.metric, found.first, found.second) == ("paraphrased_retrieval/ao_at_2", "base", "tuned")
    assert found.best == []
    (lost,) = found.worst
    assert (lost.query, lost.before, lost.after) == ("d query", 1.0, 0.0)
    gains = {gain.tier: gain.value for gain in found.gains}
    assert gains == pytest.approx({"all": -1 / 3, "common": -1 / 2, "unseen": 0})
    assert all(gain.low <= gain.value <= gain.high for gain in found.gains)
    turned = changed(folders, reports[::-1], "ao", 5, make_settings().evaluate)
    assert [one.query for one in turned.best] == ["d query"]
    with pytest.raises(InputError, match="metric 'f1' is unknown"):
        changed(folders, reports, "f1", 5, make_settings().evaluate)
    other = reports[1].model_copy(update={"data_hash": "other"})
    with pytest.raises(InputError, match="on different data"):
        changed(folders, [reports[0], other], "ao", 5, make_settings().evaluate)
