"""The review page over HTTP: random sample, verdicts, pictures, and refusals."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from components.core.system.errors import InputError
from components.core.tables.records import PAIRS
from components.registry.reviews import read_reviewed
from components.serving.explorer.reviewing import Reviewing, review_app
from tests.support.shard_making import picture
from tests.support.written_queries import write_test_set

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
