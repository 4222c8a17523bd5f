"""The review page over HTTP: a person reads written test queries and presses y or n."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, Response
from pydantic import BaseModel, Field

from components.core.pictures.stored_pictures import PICTURE, Pictures, is_picture
from components.core.system.errors import InputError
from components.core.tables.folders import TEST_SET
from components.core.tables.records import PAIRS
from components.core.tables.written_queries import WrittenQuery, frozen_hash, read_written_queries
from components.registry.reviews import LONGEST, Review, Reviews, key_of, verdicts
from components.serving.explorer.server import LARGE, guarded_app, small_jpeg

PAIRS_TO_TEST = Path("data/pairs/test.parquet")
QUESTIONS = {
    "paraphrase": "Does the query mean the same as the caption, as a person would type it?",
    "negation": "Is the query false about this picture, because it denies something that the caption states?",
    "swap": "Is the query false about this picture, because two things or attributes are exchanged?",
}
"""Kind of query -> the question that the page shows."""
_SEED = 0


class ReviewAnswer(BaseModel):
    """The verdict on the query in a row of the page."""

    row: int = Field(ge=0)
    verdict: Literal["right", "wrong"]


class Reviewing:
    """The queries to read, in a random order that is the same every time.

    The first `sample` of this order are shown, so more are a larger random sample and not another one.
    """

    def __init__(
        self, sample: int, store: str, user: str, folder: Path = TEST_SET, pairs: Path = PAIRS_TO_TEST
    ) -> None:
        written = read_written_queries(folder)
        if not written:
            raise InputError(
                f"{folder} has no written test queries: set test_set.llm in params.yaml, `dvc repro test_set`"
            )
        random.Random(_SEED).shuffle(written)
        self.queries: list[WrittenQuery] = written[:sample]
        self._test_set, self._store, self._user = frozen_hash(folder), store, user[:LONGEST]
        wanted = {query.image_id for query in self.queries}
        rows = PAIRS.read(pairs).select(PICTURE).to_pylist()
        self._pictures = {row["image_id"]: row for row in rows if row["image_id"] in wanted and is_picture(row)}

    def rows(self) -> list[dict[str, Any]]:
        """The queries with their questions and verdicts, which are empty before a review."""
        with closing(Reviews(self._store)) as reviews:
            given = verdicts(reviews.all(), self._test_set)
        return [
            {
                "caption": query.caption,
                "query": query.query,
                "kind": query.kind,
                "question": QUESTIONS[query.kind],
                "verdict": given[key].verdict if (key := key_of(query)) in given else "",
                "picture": query.image_id in self._pictures,
            }
            for query in self.queries
        ]

    def add(self, answer: ReviewAnswer) -> None:
        """Store a verdict."""
        kind, caption, query = key_of(self._query(answer.row))
        review = Review(
            user=self._user, test_set=self._test_set, caption=caption, query=query, kind=kind, verdict=answer.verdict
        )
        with closing(Reviews(self._store)) as reviews:
            reviews.add(review)

    def picture(self, row: int) -> bytes:
        """The picture of a query as JPEG, at most `LARGE` pixels long."""
        found = self._pictures.get(self._query(row).image_id)
        if found is None:
            raise InputError(f"row {row} has no picture")
        with Pictures() as pictures:
            return small_jpeg(pictures.one(found), LARGE, f"the picture of row {row}")

    def _query(self, row: int) -> WrittenQuery:
        if row >= len(self.queries):
            raise InputError(f"there are {len(self.queries)} queries, and row {row} is not one of them")
        return self.queries[row]


def review_app(reviewing: Reviewing, hosts: list[str] | None = None) -> FastAPI:
    """The page and its data; `hosts` as in `components.serving.explorer.server.make_app`."""
    app = guarded_app("cliptune review", "review", hosts)

    @app.get("/api/queries")
    def queries() -> list[dict[str, Any]]:
        return reviewing.rows()

    @app.post("/api/reviews")
    def add(answer: ReviewAnswer) -> dict[str, Any]:
        reviewing.add(answer)
        return {}

    @app.get("/pictures/{row}.jpg")
    def picture(row: int) -> Response:
        return Response(reviewing.picture(row), media_type="image/jpeg")

    return app
