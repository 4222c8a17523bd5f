"""The explorer over HTTP: what a browser, and what somebody hostile, gets."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from components.core.metrics import average_overlap
from components.explorer.server import Explored, make_app
from components.registry.votes import Votes
from tests.support.exploring import HOSTILE, PICTURES, write_evaluation


@pytest.fixture
def client(explored: Explored) -> TestClient:
    return TestClient(make_app(explored), base_url="http://127.0.0.1:8321", raise_server_exceptions=False)


def test_the_page_and_its_parts(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for file in ("explorer.css", "explorer.js"):
        assert file in page.text
        assert client.get(f"/{file}").status_code == 200


def test_info(client: TestClient) -> None:
    found = client.get("/api/info").json()
    assert (found["encoders"], found["rows"]) == (["base", "tuned"], PICTURES)
    assert found["evaluated"] == [False, False]
    assert found["filters"]["group"] == ["even", "odd"]


def test_compare(client: TestClient, explored: Explored) -> None:
    found = client.get("/api/compare", params={"q": "a dog", "p": "one hound", "k": 3}).json()
    assert found == explored.explorer.compare("a dog", "one hound", 3).model_dump()
    odd = client.get("/api/compare", params={"q": "a dog", "k": 20, "is.group": "odd"}).json()
    assert len(odd["sides"][0]["query"]) == PICTURES // 2


def test_a_most_changed_query_opens_with_the_values_of_its_row(client: TestClient, explored: Explored) -> None:
    queries = [("a dog", "one hound"), ("a cat", "one feline"), ("a red hat", "a crimson cap")]
    vectors = explored.explorer.index.vector(np.arange(0, PICTURES, 2))
    values = {}
    for one in explored.explorer.encoders:
        first, second = (
            np.argsort(-one.encoder.embed_texts(texts) @ vectors.T, 1, "stable")[:, :4]
            for texts in map(list, zip(*queries, strict=True))
        )
        values[one.name] = average_overlap(first, second, 4).tolist()
    write_evaluation(explored.folders, queries, ["common"] * 3, 4, values)
    found = client.get("/api/changed").json()
    rows = found["best"] + found["worst"]
    assert rows
    for row in rows:
        asked = {"q": row["query"], "p": row["paraphrase"]} | found["opens"]
        sides = client.get("/api/compare", params=asked).json()["sides"]
        assert [side["ao"] for side in sides] == pytest.approx([row["before"], row["after"]])


def test_pictures_are_small_jpegs(client: TestClient) -> None:
    for kind in ("thumbs", "pictures"):
        answer = client.get(f"/{kind}/3.jpg")
        assert answer.headers["content-type"] == "image/jpeg"
        with Image.open(io.BytesIO(answer.content)) as image:
            assert image.size == (24, 16)


def test_a_picture_that_changed_is_told(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "pictures/03.png").write_bytes(b"no picture")
    answer = client.get("/thumbs/3.jpg")
    assert answer.status_code == 400
    assert "03.png" in answer.json()["error"]


def test_wordings(client: TestClient) -> None:
    found = client.post("/api/wordings", json={"texts": ["a dog", "one hound", "a dog"], "k": 4}).json()
    (side, _) = found["sides"]
    assert len(side["lists"]) == 3
    assert side["to_first"][0] == side["to_first"][2] == 1.0
    one, other = side["to_first"][1], side["to_first"][1]
    assert side["ao"] == pytest.approx((1.0 + one + other) / 3)
    alone = client.post("/api/wordings", json={"texts": ["a dog"], "k": 4}).json()
    assert alone["sides"][0]["ao"] is None


def test_votes_are_blind_and_stored(client: TestClient, explored: Explored) -> None:
    asked = client.post("/api/questions", json={"query": "a dog", "paraphrase": "one hound", "k": 4}).json()
    told = json.dumps(asked)
    assert "base" not in told
    assert "tuned" not in told
    assert {hit["score"] for side in asked["sides"] for hits in side for hit in hits} == {0.0}
    answer = {"question": asked["question"], "choice": "left", "user": "Ada", "row": 3}
    who = client.post("/api/votes", json=answer).json()
    left = next(
        side for side in explored.explorer.compare("a dog", "one hound", 4).sides if side.encoder == who["left"]
    )
    assert [hit["row"] for hit in asked["sides"][0][0]] == [hit.row for hit in left.query]
    store = Votes(explored.store)
    (vote,) = store.all()
    store.close()
    assert (vote.user, vote.query, vote.paraphrase, vote.image) == ("Ada", "a dog", "one hound", "03.png")
    assert (vote.first, vote.second, vote.choice) == (who["left"], who["right"], "first")
    assert vote.first_sha256 == f"weights of {who['left']}"
    # Once.
    assert client.post("/api/votes", json=answer).status_code == 400


def test_both_sides_are_shown_on_either(client: TestClient, explored: Explored) -> None:
    orders = set()
    for _ in range(40):
        asked = client.post("/api/questions", json={"query": "a dog"}).json()
        orders.add(explored.waiting[asked["question"]][1])
    assert orders == {(0, 1), (1, 0)}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/../../etc/passwd", 404),
        ("/thumbs/..%2f..%2fetc%2fpasswd.jpg", 404),
        ("/thumbs/-1.jpg", 400),
        ("/thumbs/99999999999999999999999.jpg", 400),
        ("/thumbs/1000.jpg", 400),
        ("/api/compare", 422),
        ("/api/compare?q=", 422),
        ("/api/compare?q=a&k=0", 422),
        ("/api/compare?q=a&k=1000000000", 422),
        (f"/api/compare?q={'a' * 1001}", 422),
        ("/api/compare?q=a&is.file=%2Fetc%2Fpasswd", 400),
        ("/api/compare?q=a&is.=1", 400),
        ("/api/similar?row=12", 400),
        ("/api/similar?row=-1", 422),
        ("/api/changed?a=0&b=7", 400),
        ("/api/changed", 400),
    ],
)
def test_wrong_questions_are_refused_in_one_line(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    if status == 400:
        assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "text", ["\x00\x1b[31m\r\n", "<script>alert(1)</script>", "' OR 1=1; --", "\u202e\U0001f415" * 100]
)
def test_odd_texts_are_texts(client: TestClient, text: str) -> None:
    found = client.get("/api/compare", params={"q": text}).json()
    assert found["query"] == text
    asked = client.post("/api/questions", json={"query": text}).json()
    voted = {"question": asked["question"], "choice": "tie", "user": text[:1000]}
    assert client.post("/api/votes", json=voted).status_code == 200


@pytest.mark.parametrize(
    "body", ['{"query": "\\ud800"}', '{"query": "a", "k": NaN}', '{"query": "a", "k": 1e999}', "{"]
)
def test_values_that_json_cannot_answer_with_are_refused(client: TestClient, body: str) -> None:
    answer = client.post("/api/questions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["msg"]


def test_a_vote_names_the_picture_as_the_rows_of_the_project_do(
    client: TestClient, explored: Explored, tmp_path: Path
) -> None:
    prepare = explored.settings.prepare.model_copy(update={"folder": tmp_path})
    explored.settings = explored.settings.model_copy(update={"prepare": prepare})
    asked = client.post("/api/questions", json={"query": "a dog", "paraphrase": "one hound"}).json()
    client.post("/api/votes", json={"question": asked["question"], "choice": "left", "user": "Ada", "row": 3})
    store = Votes(explored.store)
    (vote,) = store.all()
    store.close()
    assert vote.image == "pictures/03.png"


def test_hostile_captions_arrive_as_they_are(client: TestClient) -> None:
    found = client.get("/api/compare", params={"q": "a", "k": PICTURES, "words": "onerror"})
    assert found.json()["sides"][0]["query"][0]["caption"] == HOSTILE
    assert found.headers["content-type"] == "application/json"


def test_large_bodies_are_refused_unread(client: TestClient) -> None:
    assert client.post("/api/questions", content=b"x" * 70_000).status_code == 413

    def chunks() -> Any:
        yield b"x" * 10

    assert client.post("/api/questions", content=chunks()).status_code == 413


def test_other_sites_cannot_ask(client: TestClient) -> None:
    assert client.get("/api/info", headers={"host": "evil.example"}).status_code == 400
    asked = {"query": "a dog"}
    assert client.post("/api/questions", json=asked, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post("/api/questions", json=asked, headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert (
        "access-control-allow-origin" not in client.get("/api/info", headers={"origin": "http://evil.example"}).headers
    )


def test_few_questions_wait(client: TestClient, explored: Explored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.explorer.server._WAITING", 3)
    first = client.post("/api/questions", json={"query": "a dog"}).json()
    for _ in range(3):
        client.post("/api/questions", json={"query": "a dog"})
    assert len(explored.waiting) == 3
    voted = {"question": first["question"], "choice": "left", "user": "Ada"}
    assert client.post("/api/votes", json=voted).status_code == 400
