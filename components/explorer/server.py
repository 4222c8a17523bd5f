"""The explorer's HTTP side: one page, its data as JSON, and pictures; for this machine, and whoever may reach it."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from os.path import abspath
from pathlib import Path
from random import SystemRandom
from threading import Lock
from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from components.core.errors import InputError
from components.core.settings import Settings
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.results import DEFAULT, Folders
from components.explorer.changed import METRICS, Changed, changed, scored
from components.explorer.comparing import Compared, Explorer, Hit, Marks, overlap
from components.explorer.thumbnails import Thumbnails
from components.explorer.writing import Writer
from components.registry.votes import LONGEST, Vote, Votes

MOST_SHOWN = 100
MOST_WORDINGS = 12
_LARGEST_BODY = 1 << 16
_WAITING = 1000
"""Votes that were asked and not yet answered."""
_PAGE = {"": ("explorer.html", "text/html"), "explorer.css": ("explorer.css", "text/css"),
         "explorer.js": ("explorer.js", "text/javascript")}  # fmt: skip
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_Text = Annotated[str, Field(max_length=LONGEST)]
_K = Annotated[int, Query(ge=1, le=MOST_SHOWN)]


class Wished(BaseModel):
    """One wish in several wordings."""

    texts: list[Annotated[str, Field(min_length=1, max_length=LONGEST)]] = Field(min_length=1, max_length=MOST_WORDINGS)
    k: int = Field(10, ge=1, le=MOST_SHOWN)


class Asked(BaseModel):
    """A query to vote on."""

    query: str = Field(min_length=1, max_length=LONGEST)
    paraphrase: _Text = ""
    k: int = Field(10, ge=1, le=MOST_SHOWN)


class Voted(BaseModel):
    """The answer to a blind question; `row` is the picture that the person had in mind."""

    question: str = Field(max_length=64)
    choice: Literal["left", "right", "tie"]
    user: str = Field(min_length=1, max_length=LONGEST)
    row: int | None = Field(None, ge=0)


@dataclass
class Explored:
    """What the page works on.

    Attributes:
        explorer: encoders before an index.
        settings: of the project.
        store: URL of the SQL store that votes go to.
        folders: with the project's evaluations.
    """

    explorer: Explorer
    settings: Settings
    store: str
    folders: Folders = field(default_factory=lambda: DEFAULT)

    def __post_init__(self) -> None:
        self.thumbnails, self.writer = Thumbnails(self.explorer.index), Writer(self.settings)
        self.waiting: OrderedDict[str, tuple[Asked, tuple[int, int]]] = OrderedDict()
        # torch, the index's files and a language model are asked by one request at a time.
        self.lock = Lock()

    @property
    def names(self) -> list[str]:
        """Of the encoders."""
        return [encoder.name for encoder in self.explorer.encoders]

    @property
    def hashes(self) -> list[str]:
        """Of the encoders' weights, as evaluations and votes keep them."""
        sidecars = [getattr(encoder.encoder, "sidecar", None) for encoder in self.explorer.encoders]
        return [
            sidecar.weights_sha256 if isinstance(sidecar, Sidecar) else encoder.sha256
            for sidecar, encoder in zip(sidecars, self.explorer.encoders, strict=True)
        ]

    def info(self) -> dict[str, Any]:
        """What the page shows around the results."""
        reports = scored(self.folders, self.hashes)
        return {
            "encoders": self.names,
            "rows": len(self.explorer.index),
            "index": str(self.explorer.index.folder),
            "filters": self.explorer.filters(),
            "evaluated": [report is not None for report in reports],
            "metrics": list(METRICS),
            "writes": self.writer.can,
            "votes": len(self.explorer.encoders) > 1,
        }

    def changed(self, first: int, second: int, metric: str, count: int) -> Changed:
        """See `components.explorer.changed`.

        Raises:
            InputError: an encoder was not evaluated in this project.
        """
        reports = scored(self.folders, self.hashes)
        chosen = [reports[number] for number in (first, second)]
        for number, report in zip((first, second), chosen, strict=True):
            if report is None:
                raise InputError(f"'{self.names[number]}' was not evaluated here: run `dvc repro`")
        found = changed(self.folders, [one for one in chosen if one], metric, count, self.settings.evaluate)
        if "split" not in self.explorer.index.schema.names:
            # The index has other pictures than the project.
            del found.opens["is.split"]
        return found

    def stability(self, wished: Wished, among: Marks | None) -> dict[str, Any]:
        """For every encoder the lists of all wordings, and how alike they are, on average over pairs."""
        found = self.explorer.wordings(wished.texts, wished.k, among)
        sides = []
        for name, lists in zip(self.names, found, strict=True):
            rows = [[hit.row for hit in hits] for hits in lists]
            pairs = [overlap(a, b, wished.k) for place, a in enumerate(rows) for b in rows[place + 1 :]]
            ao, js = (sum(values) / len(pairs) for values in zip(*pairs, strict=True)) if pairs else (None, None)
            first = [overlap(rows[0], other, wished.k)[0] for other in rows]
            sides.append({"encoder": name, "ao": ao, "js": js, "lists": lists, "to_first": first})
        return {"texts": wished.texts, "k": wished.k, "sides": sides}

    def ask(self, asked: Asked, among: Marks | None) -> dict[str, Any]:
        """A blind question: what two encoders find, in an order that only this process knows."""
        if len(self.explorer.encoders) < 2:
            raise InputError("one encoder alone cannot be voted on: give two with --encoder")
        order = SystemRandom().sample(range(len(self.explorer.encoders)), 2)
        compared = self.explorer.compare(asked.query, asked.paraphrase, asked.k, among)
        question = secrets.token_urlsafe(16)
        self.waiting[question] = (asked, (order[0], order[1]))
        while len(self.waiting) > _WAITING:
            self.waiting.popitem(last=False)
        # Marks would tell which is the first.
        sides = [[_blind(compared.sides[number].query), _blind(compared.sides[number].paraphrase)] for number in order]
        return {"question": question, "query": asked.query, "paraphrase": asked.paraphrase, "sides": sides}

    def vote(self, voted: Voted) -> dict[str, Any]:
        """Store the answer, and say who was who.

        Raises:
            InputError: the question is unknown or was answered, or the store cannot be reached.
        """
        if voted.question not in self.waiting:
            raise InputError("this question was answered, or the explorer was started again: ask it anew")
        asked, (left, right) = self.waiting[voted.question]
        image = "" if voted.row is None else self._source_name(voted.row)
        vote = Vote(
            user=voted.user, query=asked.query, paraphrase=asked.paraphrase, image=image[:LONGEST],
            first=self.names[left], first_sha256=self.hashes[left],
            second=self.names[right], second_sha256=self.hashes[right],
            choice="tie" if voted.choice == "tie" else "first" if voted.choice == "left" else "second",
        )  # fmt: skip
        votes = Votes(self.store)
        try:
            votes.add(vote)
        finally:
            votes.close()
        del self.waiting[voted.question]
        return {"left": self.names[left], "right": self.names[right]}

    def _source_name(self, row: int) -> str:
        """What the rows of source `folder` call a picture: its path below `prepare.folder`; else the index's name."""
        (found,) = self.explorer.index.rows([row]).to_pylist()
        folder = self.settings.prepare.folder
        if folder is not None and found["file"] is not None and found["position"] is None:
            path = Path(abspath(found["file"]))
            if path.is_relative_to(abspath(folder)):
                return path.relative_to(abspath(folder)).as_posix()
        return found["name"] or ""


def _blind(hits: Sequence[Hit]) -> list[Hit]:
    return [Hit(row=hit.row, caption=hit.caption, name=hit.name, score=0.0) for hit in hits]


def make_app(explored: Explored, hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]")) -> FastAPI:
    """The page and its data.

    Args:
        hosts: names under which browsers may ask; others are pages that had their name point here.
    """
    app = FastAPI(title="cliptune explore", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_guarded)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_exception_handler(InputError, _told)
    app.add_exception_handler(RequestValidationError, _refused)
    _add_page(app)
    _add_searches(app, explored)
    _add_votes(app, explored)
    return app


async def _guarded(request: Request, go_on: Callable[[Request], Any]) -> Response:
    length = request.headers.get("content-length", "0")
    if request.method == "POST" and ("transfer-encoding" in request.headers or not length.isdigit()
                                     or int(length) > _LARGEST_BODY):  # fmt: skip
        return JSONResponse({"error": f"a question has at most {_LARGEST_BODY} bytes, and says how many"}, 413)
    # Only a page of this server, or no page at all, may write.
    if request.method == "POST" and request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return JSONResponse({"error": "another page asked"}, 403)
    response: Response = await go_on(request)
    response.headers.update(HEADERS)
    return response


async def _told(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _refused(_: Request, error: Exception) -> Response:
    """FastAPI's answer without the values given, of which JSON cannot hold all."""
    assert isinstance(error, RequestValidationError)
    detail = [{name: one[name] for name in ("loc", "msg", "type")} for one in error.errors()]
    return JSONResponse({"detail": detail}, 422)


def _add_page(app: FastAPI) -> None:
    def shown(file: str, kind: str) -> Callable[[], Response]:
        return lambda: Response(page_file(file), media_type=kind)

    for path, (file, kind) in _PAGE.items():
        app.get(f"/{path}")(shown(file, kind))


def page_file(name: str) -> str:
    """One of the page's files."""
    return files("components.explorer").joinpath("page", name).read_text("utf-8")


def _add_searches(app: FastAPI, explored: Explored) -> None:
    explorer = explored.explorer

    @app.get("/api/info")
    def info() -> dict[str, Any]:
        return explored.info()

    @app.get("/api/compare")
    def compare(
        request: Request, q: Annotated[str, Query(min_length=1, max_length=LONGEST)],
        p: Annotated[str, Query(max_length=LONGEST)] = "", k: _K = 10,
    ) -> Compared:  # fmt: skip
        with explored.lock:
            return explorer.compare(q, p, k, _filter(request, explorer))

    @app.get("/api/similar")
    def similar(request: Request, row: Annotated[int, Query(ge=0)], k: _K = 10) -> dict[str, Any]:
        with explored.lock:
            return {"of": explorer.shown([row])[0], "hits": explorer.similar(row, k, _filter(request, explorer))}

    @app.get("/api/changed")
    def most_changed(
        a: Annotated[int, Query(ge=0)] = 0, b: Annotated[int, Query(ge=0)] = 1, metric: str = "ao",
        count: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> Changed:  # fmt: skip
        if max(a, b) >= len(explorer.encoders):
            raise InputError(f"there are {len(explorer.encoders)} encoders: give two with --encoder")
        with explored.lock:
            return explored.changed(a, b, metric, count)

    @app.post("/api/wordings")
    def wordings(request: Request, wished: Wished) -> dict[str, Any]:
        with explored.lock:
            return explored.stability(wished, _filter(request, explorer))

    @app.post("/api/paraphrases")
    def paraphrases(
        text: Annotated[str, Body(min_length=1, max_length=LONGEST)],
        count: Annotated[int, Body(ge=1, le=MOST_WORDINGS)] = 3,
    ) -> list[str]:
        with explored.lock:
            return explored.writer.paraphrases(text, count)

    @app.get("/thumbs/{row}.jpg")
    def thumbnail(row: int) -> Response:
        with explored.lock:
            return Response(explored.thumbnails.small(row), media_type="image/jpeg")

    @app.get("/pictures/{row}.jpg")
    def picture(row: int) -> Response:
        with explored.lock:
            return Response(explored.thumbnails.large(row), media_type="image/jpeg")


def _add_votes(app: FastAPI, explored: Explored) -> None:
    @app.post("/api/questions")
    def ask(request: Request, asked: Asked) -> dict[str, Any]:
        with explored.lock:
            return explored.ask(asked, _filter(request, explored.explorer))

    @app.post("/api/votes")
    def vote(voted: Voted) -> dict[str, Any]:
        with explored.lock:
            return explored.vote(voted)


def _filter(request: Request, explorer: Explorer) -> Marks | None:
    """Rows that the address asks for: `words=dog`, and `is.<column>=<value>`."""
    asked = request.query_params
    wanted = {name.removeprefix("is."): value for name, value in asked.items() if name.startswith("is.")}
    return explorer.filtered(wanted, asked.get("words", "")[:LONGEST])
