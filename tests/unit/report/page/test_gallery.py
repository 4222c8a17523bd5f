from __future__ import annotations

import base64
import io
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from components.benchmarks.embedded.paraphrased_retrieval import PARAPHRASE_TOP, QUERY_TOP
from components.core.errors import InputError
from components.core.records import PAIRS
from components.core.settings import Compare
from components.evaluation.results import Folders
from components.report.page.gallery import examples, place_name, spread
from components.report.page.retrieved import Lists, Retrieved, data_uri, read_pictures, read_retrieved

QUERIES = [{"query": f"q{row}", "paraphrase": f"p{row}", "tier": "rare"} for row in range(2)]
BASE = Lists("base", np.array([[0, 1, 2], [3, 4, 5]]), np.array([[5, 1, 0], [3, 4, 5]]))
TUNED = Lists("tuned", np.array([[0, 1, 2], [3, 4, 5]]), np.array([[0, 1, 2], [9, 8, 7]]))


def test_marks_the_gold_image_and_what_both_lists_share() -> None:
    first = examples(Retrieved([BASE, TUNED], QUERIES, [0, 3]), "tuned", Compare(gallery_queries=2, gallery_top=2))[0]
    assert (first.query, first.paraphrase, first.tier, first.gold_row) == ("q0", "p0", "rare", 0)
    base, tuned = first.sides
    assert [(shot.row, shot.gold, shot.shared) for shot in base.query] == [(0, True, False), (1, False, True)]
    assert [(shot.row, shot.gold, shot.shared) for shot in base.paraphrase] == [(5, False, False), (1, False, True)]
    assert [shot.shared for shot in tuned.query] == [True, True]


def test_shows_gains_before_losses_by_the_overlap_of_the_full_lists() -> None:
    found = examples(Retrieved([BASE, TUNED], QUERIES, [0, 3]), "tuned", Compare(gallery_queries=2, gallery_top=1))
    # Base's lists for the first query share 0, 1 and 2 images at depths 1, 2 and 3.
    expected = (0 / 1 + 1 / 2 + 2 / 3) / 3
    assert [example.gain for example in found] == pytest.approx([1 - expected, -1])
    assert [example.place for example in found] == ["largest gain of 2 queries", "largest loss of 2 queries"]
    assert found[0].sides[0].overlap == pytest.approx(expected)


def test_rankings_of_other_queries_are_refused(folders: Folders) -> None:
    stored = {"base": {QUERY_TOP: BASE.query, PARAPHRASE_TOP: BASE.paraphrase}}
    with pytest.raises(InputError, match="'base' was evaluated on other queries"):
        read_retrieved(stored, folders)


def test_a_query_about_an_image_that_is_not_there_is_named(folders: Folders) -> None:
    three = np.zeros((3, 1), dtype=np.int64)
    columns: dict[str, list[object]] = {
        "id": ["a"],
        "image_id": ["a"],
        "image": [b"none"],
        "caption": ["a"],
        "facts": [None],
    }
    PAIRS.write(folders.test_pairs, columns)
    with pytest.raises(InputError, match=r"paraphrase_queries.parquet names image 'c', not in .*test.parquet"):
        read_retrieved({"base": {QUERY_TOP: three, PARAPHRASE_TOP: three}}, folders)


def test_the_spread_has_the_best_the_median_and_the_worst() -> None:
    assert spread(5, 2) == [0, 4]
    assert spread(5, 3) == [0, 2, 4]
    assert spread(5, 99) == [0, 1, 2, 3, 4]
    assert spread(1000, 4) == [0, 333, 499, 666, 999]
    names = [place_name(place, 1000) for place in (0, 333, 499, 999)]
    assert names == [f"{name} of 1,000 queries" for name in ("largest gain", "number 334", "median", "largest loss")]


def _image(size: tuple[int, int], kind: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, "red").save(stream, kind)
    return stream.getvalue()


def _decoded(uri: str) -> tuple[str, bytes]:
    head, body = uri.split(",", 1)
    return head, base64.b64decode(body)


def test_small_images_stay_as_they_are() -> None:
    image = _image((64, 64), "PNG")
    assert _decoded(data_uri(image)) == ("data:image/png;base64", image)


@pytest.mark.parametrize(("size", "kind"), [((400, 200), "PNG"), ((20, 20), "BMP")])
def test_large_and_unusual_images_become_small_jpegs(size: tuple[int, int], kind: str) -> None:
    head, body = _decoded(data_uri(_image(size, kind)))
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(body)) as opened:
        assert max(opened.size) <= 128
        assert opened.size[0] / opened.size[1] == size[0] / size[1]


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "id": ["a"],
        "image_id": ["a"],
        "image": [b"none"],
        "caption": ["a"],
        "facts": [None],
    }
    PAIRS.write(tmp_path / "test.parquet", columns)
    with pytest.raises(InputError, match=r"test.parquet: row 0 holds no image"):
        read_pictures(tmp_path / "test.parquet", [0])


def test_of_an_embedding_the_caption_is_drawn(tmp_path: Path) -> None:
    columns = {"id": ["a"], "image_id": ["x"], "caption": ['a <b> & "c" of many more words than one line holds']}
    PAIRS.write(tmp_path / "test.parquet", {**columns, "file": ["img_emb_0.npy"], "position": [3]})
    picture = read_pictures(tmp_path / "test.parquet", [0])[0]
    kind, _, drawn = unquote(picture.src).partition(",")
    assert kind == "data:image/svg+xml"
    texts = [node.text for node in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}tspan")]
    assert " ".join(map(str, texts)) == picture.alt == columns["caption"][0]
