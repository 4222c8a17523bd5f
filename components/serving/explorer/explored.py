"""The data of the explorer's page: encoders over an index, and thumbnails."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, Field

from components.core.pictures.rgb import upright_jpeg
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.encoders.adapter.sidecar import Sidecar
from components.evaluation.scoring.results import DEFAULT, Folders
from components.registry.reviews import LONGEST
from components.serving.explorer.comparing import METRICS, Changed, Explorer, changed, overlap, scored
from components.serving.index.image_index import ImageIndex

MOST_SHOWN = 100
MOST_WORDINGS = 12
SIDE = 192
"""Longest side of a thumbnail in pixels."""
LARGE = 768
_KEPT = 2048


class WordingsRequest(BaseModel):
    """One query in several wordings."""

    texts: list[Annotated[str, Field(min_length=1, max_length=LONGEST)]] = Field(min_length=1, max_length=MOST_WORDINGS)
    k: int = Field(10, ge=1, le=MOST_SHOWN)


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
        self.thumbnails = Thumbnails(self.explorer.index, self.settings.prepare.picture_bound)
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
        """See `components.serving.explorer.changed`."""
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

    def stability(self, request: WordingsRequest, among: str | None) -> dict[str, Any]:
        """For every encoder, the lists of all wordings and their mean overlap over all pairs."""
        wordings = self.explorer.wordings(request.texts, request.k, among)
        sides = []
        for name, lists in zip(self.names, wordings, strict=True):
            rows = [[hit.row for hit in hits] for hits in lists]
            pairs = [overlap(a, b, request.k) for place, a in enumerate(rows) for b in rows[place + 1 :]]
            ao, js = (sum(values) / len(pairs) for values in zip(*pairs, strict=True)) if pairs else (None, None)
            first = [overlap(rows[0], other, request.k)[0] for other in rows]
            sides.append({"encoder": name, "ao": ao, "js": js, "lists": lists, "to_first": first})
        return {"texts": request.texts, "k": request.k, "sides": sides}


class Thumbnails:
    """Small JPEGs of an index's pictures by row; the last few thousand are cached."""

    def __init__(self, index: ImageIndex, most: Bound) -> None:
        self._index, self._most = index, most
        self.small = lru_cache(_KEPT)(self._jpeg)

    def large(self, row: int) -> bytes:
        """The picture, at most `LARGE` pixels long."""
        return self._jpeg(row, LARGE)

    def _jpeg(self, row: int, side: int = SIDE) -> bytes:
        return small_jpeg(self._index.picture(row, self._most), side, f"the picture of row {row}")


def small_jpeg(encoded: bytes, side: int, subject: str) -> bytes:
    """The picture as JPEG, at most `side` pixels long."""
    try:
        return upright_jpeg(encoded, side)
    except ValueError as error:
        raise InputError(f"{subject} cannot be decoded ({error})") from None
