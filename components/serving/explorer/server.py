"""The explorer over HTTP: one page, its data as JSON, and thumbnails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from threading import Lock
from typing import Annotated, Any, Protocol

from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse

from components.core.pictures.rgb import upright_jpeg
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.scoring.results import DEFAULT, Folders
from components.registry.reviews import LONGEST
from components.serving.explorer.comparing import METRICS, Changed, Compared, Explorer, changed, scored
from components.serving.server.address import is_foreign

MOST_SHOWN = 100
_MOST_PARAPHRASES = 12
SIDE = 192
"""Longest side of a thumbnail in pixels."""
LARGE = 768
_KEPT = 2048
_LARGEST_BODY = 1 << 16
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_K = Annotated[int, Query(ge=1, le=MOST_SHOWN)]


class Writer(Protocol):
    """Who writes other wordings of a query."""

    @property
    def can(self) -> bool:
        """Whether it can, by params.yaml."""

    def paraphrases(self, text: str, count: int) -> list[str]:
        """Up to `count` different paraphrases of a text; raises `InputError` if there is none."""


@dataclass
class Explored:
    """The state of an explorer."""

    explorer: Explorer
    settings: Settings
    writer: Writer
    folders: Folders = field(default_factory=lambda: DEFAULT)

    def __post_init__(self) -> None:
        self.thumbnail = lru_cache(_KEPT)(self.picture)
        # torch, the index's files and a language model serve one request at a time.
        self.lock = Lock()

    @property
    def names(self) -> list[str]:
        """Names of the encoders."""
        return [encoder.name for encoder in self.explorer.encoders]

    @property
    def hashes(self) -> list[str]:
        """Hashes of the encoders' weights, as in evaluations."""
        sidecars = [getattr(encoder.encoder, "sidecar", None) for encoder in self.explorer.encoders]
        return [
            sidecar.weights_sha256 if isinstance(sidecar, Sidecar) else encoder.sha256
            for sidecar, encoder in zip(sidecars, self.explorer.encoders, strict=True)
        ]

    def picture(self, row: int, side: int = SIDE) -> bytes:
        """The picture of a row as JPEG, at most `side` pixels long; the last few thousand thumbnails are cached."""
        encoded = self.explorer.index.picture(row, self.settings.prepare.picture_bound)
        return small_jpeg(encoded, side, f"the picture of row {row}")

    def info(self) -> dict[str, Any]:
        """Names, counts and options of the page."""
        reports = scored(self.folders, self.hashes)
        return {
            "encoders": self.names,
            "rows": len(self.explorer.index),
            "index": str(self.explorer.index.folder),
            "filters": self.explorer.filters(),
            "evaluated": [report is not None for report in reports],
            "metrics": list(METRICS),
            "writes": self.writer.can,
        }

    def changed(self, first: int, second: int, metric: str, count: int) -> Changed:
        """See `components.serving.explorer.comparing.changed`."""
        reports = scored(self.folders, self.hashes)
        chosen = [reports[number] for number in (first, second)]
        for number, report in zip((first, second), chosen, strict=True):
            if report is None:
                raise InputError(f"'{self.names[number]}' was not evaluated here: run `dvc repro`")
        changes = changed(self.folders, [report for report in chosen if report], metric, count, self.settings.evaluate)
        if "split" not in self.explorer.index.schema.names:
            # The index has other pictures than the project.
            del changes.opens["is.split"]
        return changes


def small_jpeg(encoded: bytes, side: int, subject: str) -> bytes:
    """The picture as JPEG, at most `side` pixels long."""
    try:
        return upright_jpeg(encoded, side)
    except ValueError as error:
        raise InputError(f"{subject} cannot be decoded ({error})") from None


def make_app(explored: Explored, hosts: Sequence[str] | None = None) -> FastAPI:
    """The page and its data; `hosts` as in `guarded_app`."""
    app, explorer = guarded_app("cliptune explore", "explorer", hosts), explored.explorer

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

    @app.post("/api/paraphrases")
    def paraphrases(
        text: Annotated[str, Body(min_length=1, max_length=LONGEST)],
        count: Annotated[int, Body(ge=1, le=_MOST_PARAPHRASES)] = 3,
    ) -> list[str]:
        with explored.lock:
            return explored.writer.paraphrases(text, count)

    @app.get("/thumbs/{row}.jpg")
    def thumbnail(row: int) -> Response:
        with explored.lock:
            return Response(explored.thumbnail(row), media_type="image/jpeg")

    @app.get("/pictures/{row}.jpg")
    def picture(row: int) -> Response:
        with explored.lock:
            return Response(explored.picture(row, LARGE), media_type="image/jpeg")

    return app


def guarded_app(title: str, page: str, hosts: Sequence[str] | None = None) -> FastAPI:
    """An app with the files `<page>.html` and `<page>.js` and the style sheet, for data behind them.

    Requests for `hosts` are accepted, by default for this machine's names: others may be names redirected to it.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_guarded)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts or ("127.0.0.1", "localhost", "[::1]")))
    app.add_exception_handler(InputError, _input_error)
    app.add_exception_handler(RequestValidationError, _refused)
    _add_page(app, page)
    return app


async def _guarded(request: Request, go_on: Callable[[Request], Any]) -> Response:
    length = request.headers.get("content-length", "0")
    if request.method == "POST" and ("transfer-encoding" in request.headers or not length.isdigit()
                                     or int(length) > _LARGEST_BODY):  # fmt: skip
        return JSONResponse({"error": f"a request needs a content-length of at most {_LARGEST_BODY} bytes"}, 413)
    # Only pages of this server, and programs, may write.
    if request.method == "POST" and is_foreign(request.headers):
        return JSONResponse({"error": "request from another page"}, 403)
    response: Response = await go_on(request)
    response.headers.update(HEADERS)
    return response


async def _input_error(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _refused(_: Request, error: Exception) -> Response:
    """FastAPI's answer without the given values, which JSON may not be able to hold."""
    assert isinstance(error, RequestValidationError)
    detail = [{name: fault[name] for name in ("loc", "msg", "type")} for fault in error.errors()]
    return JSONResponse({"detail": detail}, 422)


def _add_page(app: FastAPI, page: str) -> None:
    pages = files("components.serving.explorer").joinpath("page")

    def shown(file: str, kind: str) -> Callable[[], Response]:
        return lambda: Response(pages.joinpath(file).read_text("utf-8"), media_type=kind)

    app.get("/")(shown(f"{page}.html", "text/html"))
    for file, kind in (("explorer.css", "text/css"), (f"{page}.js", "text/javascript")):
        app.get(f"/{file}")(shown(file, kind))


def _filter(request: Request, explorer: Explorer) -> str | None:
    """The filter in an address: `words=dog`, and `is.<column>=<value>`."""
    query = request.query_params
    wanted = {name.removeprefix("is."): value for name, value in query.items() if name.startswith("is.")}
    return explorer.filtered(wanted, query.get("words", "")[:LONGEST])
