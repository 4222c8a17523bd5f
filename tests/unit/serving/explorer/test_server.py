"""The explorer and the review page over HTTP: lists of the index and of the evaluation, samples, verdicts, refusals."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from components.core.compute.metrics import average_overlap, jaccard_similarity
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.records import PAIRS
from components.encoders.adapter.encoder import Encoder
from components.registry.reviews import read_reviewed
from components.serving.explorer.comparing import Explorer, changed, overlap, scored
from components.serving.explorer.reviewing import Reviewing, review_app
from components.serving.explorer.server import Explored, make_app
from tests.support.exploring import HOSTILE, PICTURES, make_explored, write_evaluation
from tests.support.shard_making import picture
from tests.support.written_queries import write_test_set


@pytest.fixture
def explored(tmp_path: Path, settings: Settings, tiny_encoder: Encoder) -> Explored:
    return make_explored(tmp_path, settings, tiny_encoder)


@pytest.fixture
def explorer(explored: Explored) -> Explorer:
    return explored.explorer


@pytest.fixture
def client(explored: Explored) -> TestClient:
    return TestClient(make_app(explored), base_url="http://127.0.0.1:8321", raise_server_exceptions=False)


def _ranked(explorer: Explorer, encoder: int, text: str) -> list[int]:
    features = explorer.encoders[encoder].encoder.embed_texts([text])
    similarity = features @ explorer.index.vector(np.arange(PICTURES)).T
    return [int(row) for row in np.argsort(-similarity[0], kind="stable")]


def test_lists_measures_moves_and_similar_pictures_equal_those_of_the_encoders(explorer: Explorer) -> None:
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
    base, tuned = explorer.compare("a dog", "", 4).sides
    first, second = (_ranked(explorer, number, "a dog") for number in range(2))
    assert [hit.move for hit in tuned.query] == [first.index(row) - place for place, row in enumerate(second[:4])]
    assert {hit.row for hit in tuned.query if hit.new} == set(second[:4]) - set(first[:4])
    assert {hit.row for hit in tuned.lost} == set(first[:4]) - set(second[:4])
    assert (base.lost, tuned.paraphrase, tuned.ao) == ([], [], None)
    similarity = explorer.index.vector([3]) @ explorer.index.vector(np.arange(PICTURES)).T
    expected = [row for row in np.argsort(-similarity[0], kind="stable").tolist() if row != 3][:5]
    found = explorer.similar(3, 5)
    assert [hit.row for hit in found] == expected
    assert found[0].score == pytest.approx(float(similarity[0, expected[0]]), abs=1e-6)


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


def test_cached_texts_are_dropped_only_after_use(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.serving.explorer.comparing._KEPT", 3)
    for query, paraphrase in (("1", "2"), ("3", "4"), ("5", "")):
        explorer.compare(query, paraphrase, 4)
    explorer.compare("a dog", "", 4)
    found = explorer.compare("a dog", "one hound", 4)
    assert [hit.row for hit in found.sides[0].query] == _ranked(explorer, 0, "a dog")[:4]
    assert len(explorer._features) == 3


def test_the_most_changed_queries_and_gains_per_tier(explored: Explored) -> None:
    queries = [(f"{name} query", f"{name} paraphrase") for name in "abcde"]
    values = {"base": [0.5, 0.75, 1.0, 0.25, 0.5], "tuned": [0.5, 0.5, 0.0, 0.5, 1.0]}
    write_evaluation(explored.folders, queries, ["common", "unseen", "common", "unseen", "unseen"], 2, values)
    (base, tuned, other), settings = scored(explored.folders, [*explored.hashes, "others"]), explored.settings.evaluate
    assert base is not None
    assert tuned is not None
    assert (base.encoder, tuned.encoder, other) == ("base", "tuned", None)
    found = changed(explored.folders, [base, tuned], "ao", 5, settings)
    assert (found.metric, found.first, found.second) == ("paraphrased_retrieval/ao_at_2", "base", "tuned")
    shown = [[(one.query[0], one.before, one.after) for one in part] for part in (found.best, found.worst)]
    assert shown == [[("e", 0.5, 1.0), ("d", 0.25, 0.5)], [("c", 1.0, 0.0), ("b", 0.75, 0.5)]]
    gains = {gain.tier: gain.value for gain in found.gains}
    assert gains == pytest.approx({"all": -0.5 / 5, "common": -1 / 2, "unseen": 0.5 / 3})
    assert all(gain.low is None and gain.high is None for gain in found.gains), "too few queries for an interval"
    turned = changed(explored.folders, [tuned, base], "ao", 1, settings)
    assert [one.query for one in turned.best] == ["c query"]
    others = tuned.model_copy(update={"data_hash": "other"})
    for second, metric, refusal in ((tuned, "f1", "metric 'f1' is unknown"), (others, "ao", "on different data")):
        with pytest.raises(InputError, match=refusal):
            changed(explored.folders, [base, second], metric, 5, settings)


def test_the_page_its_facts_comparisons_and_a_most_changed_query(client: TestClient, explored: Explored) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for file in ("explorer.css", "explorer.js"):
        assert file in page.text
        assert client.get(f"/{file}").status_code == 200
    found = client.get("/api/info").json()
    assert (found["encoders"], found["rows"]) == (["base", "tuned"], PICTURES)
    assert found["evaluated"] == [False, False]
    assert found["filters"]["group"] == ["even", "odd"]
    found = client.get("/api/compare", params={"q": "a dog", "p": "one hound", "k": 3}).json()
    assert found == explored.explorer.compare("a dog", "one hound", 3).model_dump()
    odd = client.get("/api/compare", params={"q": "a dog", "k": 20, "is.group": "odd"}).json()
    assert len(odd["sides"][0]["query"]) == PICTURES // 2
    queries = [("a dog", "one hound"), ("a cat", "one feline"), ("a red hat", "a crimson cap")]
    vectors = explored.explorer.index.vector(np.arange(0, PICTURES, 2))
    values = {}
    for under_test in explored.explorer.encoders:
        features = (under_test.encoder.embed_texts(list(texts)) for texts in zip(*queries, strict=True))
        lists = [np.argsort(-found @ vectors.T, 1, "stable")[:, :4] for found in features]
        values[under_test.name] = average_overlap(*lists, 4).tolist()
    write_evaluation(explored.folders, queries, ["common"] * 3, 4, values)
    found = client.get("/api/changed").json()
    rows = found["best"] + found["worst"]
    assert rows
    for row in rows:
        opened = {"q": row["query"], "p": row["paraphrase"]} | found["opens"]
        sides = client.get("/api/compare", params=opened).json()["sides"]
        assert [side["ao"] for side in sides] == pytest.approx([row["before"], row["after"]])


def test_pictures_are_small_jpegs_and_damaged_ones_are_named(client: TestClient, tmp_path: Path) -> None:
    for kind in ("thumbs", "pictures"):
        answer = client.get(f"/{kind}/3.jpg")
        assert answer.headers["content-type"] == "image/jpeg"
        with Image.open(io.BytesIO(answer.content)) as image:
            assert image.size == (24, 16)
    (tmp_path / "pictures/04.png").write_bytes(b"no picture")
    answer = client.get("/thumbs/4.jpg")
    assert (answer.status_code, "04.png" in answer.json()["error"]) == (400, True)


def test_wrong_requests_are_refused_and_hostile_texts_returned_unchanged(client: TestClient) -> None:
    for path, status in (
        ("/../../etc/passwd", 404),
        ("/thumbs/..%2f..%2fetc%2fpasswd.jpg", 404),
        ("/thumbs/-1.jpg", 400),
        ("/thumbs/99999999999999999999999.jpg", 400),
        ("/api/compare?q=", 422),
        ("/api/compare?q=a&k=1000000000", 422),
        (f"/api/compare?q={'a' * 1001}", 422),
        ("/api/compare?q=a&is.file=%2Fetc%2Fpasswd", 400),
        ("/api/similar?row=12", 400),
        ("/api/changed?a=0&b=7", 400),
        ("/api/changed", 400),
    ):
        answer = client.get(path)
        assert answer.status_code == status, (path, answer.text)
        assert status != 400 or "\n" not in answer.json()["error"]
    # Values that a JSON response cannot hold.
    for body in ('{"text": "\\ud800"}', '{"text": "a", "count": NaN}', '{"text": "a", "count": 1e999}', "{"):
        answer = client.post("/api/paraphrases", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["msg"]
    for text in ("\x00\x1b[31m\r\n", "<script>alert(1)</script>", "' OR 1=1; --", "\u202e\U0001f415" * 100):
        found = client.get("/api/compare", params={"q": text}).json()
        assert found["query"] == text
    found = client.get("/api/compare", params={"q": "a", "k": PICTURES, "words": "onerror"})
    assert found.json()["sides"][0]["query"][0]["caption"] == HOSTILE
    assert found.headers["content-type"] == "application/json"
    for body in (b"x" * 70_000, iter([b"x" * 10])):
        assert client.post("/api/paraphrases", content=body).status_code == 413


def test_other_sites_are_refused(client: TestClient, explored: Explored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explored.writer, "paraphrases", lambda text, count: [text] * count)
    assert client.get("/api/info", headers={"host": "evil.example"}).status_code == 400
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        headers = {"sec-fetch-site": site}
        assert client.post("/api/paraphrases", json={"text": "a dog"}, headers=headers).status_code == status
    # To other names than 127.0.0.1 browsers send no such header over HTTP.
    for origin, status in (("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:8321", 200)):
        headers = {"origin": origin, "host": "127.0.0.1:8321"}
        assert client.post("/api/paraphrases", json={"text": "a dog"}, headers=headers).status_code == status
    headers = dict(client.get("/api/info", headers={"origin": "http://evil.example"}).headers)
    assert "access-control-allow-origin" not in headers


STORE = "sqlite:///store.db"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four pictures, of which one is an embedding only, with three queries each."""
    monkeypatch.chdir(tmp_path)
    write_test_set(Path("data/test_set"), [(f"image {number}", f"caption {number}") for number in range(4)])
    ids = [f"image {number}" for number in range(4)]
    columns = {"id": ids, "image_id": ids, "caption": ids, "image": [picture(0, size=(40, 20))] * 3 + [None]}
    Path("data/pairs").mkdir()
    PAIRS.write(Path("data/pairs/test.parquet"), columns)


def _client(sample: int = 12, user: str = "Ada") -> TestClient:
    return TestClient(review_app(Reviewing(sample, STORE, user)), base_url="http://127.0.0.1:8321")


def test_verdicts_are_stored_at_once_and_read_rows_are_marked() -> None:
    client = _client()
    rows = client.get("/api/queries").json()
    assert len(rows) == 12
    assert {row["verdict"] for row in rows} == {""}
    assert all(row["question"] and row["query"] == f"{row['kind']} of {row['caption']}" for row in rows)
    for row, verdict in ((0, "right"), (1, "wrong"), (2, "right"), (1, "right"), (0, "wrong")):
        assert client.post("/api/reviews", json={"row": row, "verdict": verdict}).status_code == 200
    # A new page, as after a kill, has the last verdict on each query.
    assert [row["verdict"] for row in _client(user="Bob").get("/api/queries").json()[:4]] == [
        "wrong",
        "right",
        "right",
        "",
    ]
    found = read_reviewed(STORE)
    assert found is not None
    assert (found.read, found.right) == (3, 2)


def test_pictures_refusals_and_a_larger_sample_that_extends_the_smaller_one() -> None:
    small, large = (_client(sample).get("/api/queries").json() for sample in (5, 12))
    assert large[:5] == small
    assert [row["caption"] for row in large] != sorted(row["caption"] for row in large)
    client = _client()
    rows = client.get("/api/queries").json()
    for number, row in enumerate(rows):
        answer = client.get(f"/pictures/{number}.jpg")
        assert answer.status_code == (200 if row["picture"] else 400)
        if row["picture"]:
            assert Image.open(io.BytesIO(answer.content)).size == (40, 20)
    assert sum(row["picture"] for row in rows) == 9
    for body, code in (({"row": 99, "verdict": "right"}, 400), ({"row": 0, "verdict": "unsure"}, 422)):
        assert client.post("/api/reviews", json=body).status_code == code
    foreign = {"sec-fetch-site": "cross-site"}
    assert client.post("/api/reviews", json={"row": 0, "verdict": "right"}, headers=foreign).status_code == 403
    assert client.get("/api/queries").json() == rows
    Path("data/test_set/queries.parquet").unlink()
    with pytest.raises(InputError, match=r"set test_set\.llm"):
        _client()
