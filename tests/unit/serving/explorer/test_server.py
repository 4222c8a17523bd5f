"""The explorer over HTTP, also for hostile clients, and its page as one file."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from components.core.compute.metrics import average_overlap
from components.serving.explorer.server import Explored, make_app, snapshot
from tests.support.exploring import HOSTILE, PICTURES, write_evaluation


@pytest.fixture
def client(explored: Explored) -> TestClient:
    return TestClient(make_app(explored), base_url="http://127.0.0.1:8321", raise_server_exceptions=False)


def test_the_page_its_facts_and_comparisons(client: TestClient, explored: Explored) -> None:
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


def test_a_most_changed_query_opens_with_the_values_of_its_row(client: TestClient, explored: Explored) -> None:
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


def test_overlap_of_wordings(client: TestClient) -> None:
    found = client.post("/api/wordings", json={"texts": ["a dog", "one hound", "a dog"], "k": 4}).json()
    (side, _) = found["sides"]
    assert len(side["lists"]) == 3
    assert side["to_first"][0] == side["to_first"][2] == 1.0
    assert side["ao"] == pytest.approx((1.0 + 2 * side["to_first"][1]) / 3)
    single = client.post("/api/wordings", json={"texts": ["a dog"], "k": 4}).json()
    assert single["sides"][0]["ao"] is None


def test_wrong_requests_are_refused_in_one_line(client: TestClient) -> None:
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
    for body in ('{"texts": ["\\ud800"]}', '{"texts": ["a"], "k": NaN}', '{"texts": ["a"], "k": 1e999}', "{"):
        answer = client.post("/api/wordings", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["msg"]


def test_hostile_texts_are_returned_unchanged(client: TestClient) -> None:
    for text in ("\x00\x1b[31m\r\n", "<script>alert(1)</script>", "' OR 1=1; --", "\u202e\U0001f415" * 100):
        found = client.get("/api/compare", params={"q": text}).json()
        assert found["query"] == text
        assert client.post("/api/wordings", json={"texts": [text]}).json()["texts"] == [text]
    found = client.get("/api/compare", params={"q": "a", "k": PICTURES, "words": "onerror"})
    assert found.json()["sides"][0]["query"][0]["caption"] == HOSTILE
    assert found.headers["content-type"] == "application/json"


def test_large_bodies_and_those_of_unknown_length_are_refused_unread(client: TestClient) -> None:
    for body in (b"x" * 70_000, iter([b"x" * 10])):
        assert client.post("/api/wordings", content=body).status_code == 413


def test_requests_of_other_sites_are_refused(client: TestClient) -> None:
    assert client.get("/api/info", headers={"host": "evil.example"}).status_code == 400
    for site, status in (("cross-site", 403), ("same-origin", 200)):
        headers = {"sec-fetch-site": site}
        assert client.post("/api/wordings", json={"texts": ["a dog"]}, headers=headers).status_code == status
    # To other names than 127.0.0.1 browsers send no such header over HTTP.
    for origin, status in (("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:8321", 200)):
        headers = {"origin": origin, "host": "127.0.0.1:8321"}
        assert client.post("/api/wordings", json={"texts": ["a dog"]}, headers=headers).status_code == status
    headers = dict(client.get("/api/info", headers={"origin": "http://evil.example"}).headers)
    assert "access-control-allow-origin" not in headers


def test_a_vector_without_a_picture_has_its_caption(explored: Explored, monkeypatch: pytest.MonkeyPatch) -> None:
    index = explored.explorer.index
    rows = index.rows(range(PICTURES))
    bare = rows.set_column(rows.schema.get_field_index("size"), "size", [[None] * PICTURES])
    monkeypatch.setattr(index, "rows", bare.take)
    page = snapshot(explored, [("a dog", "")], 2)
    assert '"pictures": {"' in page
    assert "data:image" not in page
    assert "of a dog" in page


def test_the_exported_page_is_complete_and_safe(explored: Explored) -> None:
    page = snapshot(explored, [("a dog", "one hound"), ("a </script> cat", "")], PICTURES)
    found = re.search(r'<script type="application/json" id="snapshot">(.*?)</script>', page, re.DOTALL)
    content = json.loads(found.group(1))
    assert [one["query"] for one in content["compared"]] == ["a dog", "a </script> cat"]
    assert content["compared"][0] == explored.explorer.compare("a dog", "one hound", PICTURES).model_dump()
    assert len(content["pictures"]) == PICTURES
    assert all(uri.startswith("data:image/jpeg;base64,") for uri in content["pictures"].values())
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "src=" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "connect-src" not in page
    assert "default-src &#x27;none&#x27;" in page
