"""The gallery, pictures and origin of the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from components.core.settings import Compare, Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tables.records import PAIRS
from components.evaluation.benchmarks.project.rankings import PARAPHRASE_TOP, QUERY_TOP
from components.evaluation.report import compare
from components.evaluation.report.gallery import (
    Lists,
    Retrieved,
    data_uri,
    examples,
    place_name,
    read_pictures,
    read_retrieved,
    spread,
)
from components.evaluation.scoring.results import Folders, Report
from tests.support.shard_making import encoded

QUERIES = [{"query": f"q{row}", "paraphrase": f"p{row}", "tier": "rare"} for row in range(2)]
BASE = Lists("base", np.array([[0, 1, 2], [3, 4, 5]]), np.array([[5, 1, 0], [3, 4, 5]]))
TUNED = Lists("tuned", np.array([[0, 1, 2], [3, 4, 5]]), np.array([[0, 1, 2], [9, 8, 7]]))
BOTH = Retrieved([BASE, TUNED], QUERIES, [0, 3])
NO_IMAGE: dict[str, list[object]] = {
    "id": ["a"], "image_id": ["a"], "image": [b"none"], "caption": ["a"], "facts": [None]
}  # fmt: skip


def test_examples_are_spread_and_show_the_first_images_with_gains_by_the_full_lists() -> None:
    found = examples(BOTH, "tuned", Compare(gallery_queries=2, gallery_top=2))
    assert (found[0].texts, found[0].gold_row) == (QUERIES[0], 0)
    assert [[*side.query, *side.paraphrase] for side, _ in found[0].sides] == [[0, 1, 5, 1], [0, 1, 0, 1]]
    # Base's lists for the first query share 0, 1 and 2 images at depths 1, 2 and 3.
    expected = (0 / 1 + 1 / 2 + 2 / 3) / 3
    assert [example.gain for example in found] == pytest.approx([1 - expected, -1])
    assert [example.place for example in found] == ["largest gain of 2 queries", "largest loss of 2 queries"]
    assert [spread(5, 2), spread(5, 3), spread(4, 99)] == [[0, 4], [0, 2, 4], [0, 1, 2, 3]]
    assert spread(1000, 4) == [0, 499, 666, 999]
    names = [place_name(place, 1000) for place in (0, 333, 499, 999)]
    assert names == [f"{name} of 1,000 queries" for name in ("largest gain", "number 334", "median", "largest loss")]


def test_images_are_kept_or_small_jpegs_and_of_an_embedding_the_caption_is_drawn(tmp_path: Path) -> None:
    image = encoded(Image.new("RGB", (64, 64), "red"))
    assert data_uri(image) == f"data:image/png;base64,{base64.b64encode(image).decode()}"
    for size, kind, small in (((400, 200), "PNG", (128, 64)), ((20, 20), "BMP", (20, 20))):
        head, body = data_uri(encoded(Image.new("RGB", size, "red"), kind)).split(",", 1)
        assert head == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(body))) as opened:
            assert opened.size == small
    PAIRS.write(tmp_path / "test.parquet", NO_IMAGE)
    with pytest.raises(InputError, match=r"test.parquet: row 0 is not an image"):
        read_pictures(tmp_path / "test.parquet", [0])
    columns = {"id": ["a"], "image_id": ["x"], "caption": ['a <b> & "c" of many more words than one line holds']}
    PAIRS.write(tmp_path / "test.parquet", {**columns, "file": ["img_emb_0.npy"], "position": [3]})
    source, description = read_pictures(tmp_path / "test.parquet", [0])[0]
    kind, _, drawn = unquote(source).partition(",")
    assert kind == "data:image/svg+xml"
    texts = [node.text for node in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}tspan")]
    assert " ".join(map(str, texts)) == description == columns["caption"][0]


def test_the_origin_is_named_and_rankings_that_do_not_fit_the_tables_are_refused(
    folders: Folders, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "git_commit", lambda: "abc-dirty")
    report = Report(encoder="e", protocol="retrieval=1 swaps=2", data_hash="d", encoder_sha256="s", metrics={})
    origin = compare.trace_origin(make_settings(), report, folders)
    assert (origin["commit"], origin["data_hash"]) == ("abc-dirty", "d")
    assert origin["protocols"] == {"retrieval": "1", "swaps": "2"}
    assert origin["data"][str(folders.test_pairs)] == file_hash(folders.test_pairs)
    # Pairs, paraphrase queries, caption queries, labels, swaps and caption ratings.
    assert len(origin["data"]) == 6
    assert origin["packages"]["torch"][0].isdigit()
    assert "metric: paraphrased_retrieval/ao_at_2" in origin["params"]
    stored = {"base": {QUERY_TOP: BASE.query, PARAPHRASE_TOP: BASE.paraphrase}}
    with pytest.raises(InputError, match="'base' was evaluated on other queries"):
        read_retrieved(stored, folders)
    three = np.zeros((3, 1), dtype=np.int64)
    PAIRS.write(folders.test_pairs, NO_IMAGE)
    with pytest.raises(InputError, match=r"paraphrase_queries.parquet names image 'c', which is not in .*test.parquet"):
        read_retrieved({"base": {QUERY_TOP: three, PARAPHRASE_TOP: three}}, folders)


def test_secrets_are_not_shown() -> None:
    for given, shown in (
        ({"store": "postgresql://me:hidden@host/db"}, {"store": "postgresql://***@host/db"}),
        ({"models": [{"api_key": "hidden", "max_tokens": 4}]}, {"models": [{"api_key": "***", "max_tokens": 4}]}),
        ({"token": "", "tokenizer": "clip-bpe"}, {"token": "", "tokenizer": "clip-bpe"}),
    ):
        assert compare.without_secrets(given) == shown
