"""Qdrant: `qdrant://host:6333/collection`, `qdrant+https://...`, or a folder of its client, `qdrant+file:///...`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import PurePosixPath
from typing import Any

from components.core.system.errors import InputError
from components.vector_stores.store import OpenStore, Page, StoreUrl, VectorStore, matrix

_KEY = "QDRANT_API_KEY"
_END = "end"
"""Stands for the page behind the last one; points have numbers or UUIDs."""


class _Collection:
    def __init__(self, client: Any, name: str, vector: str | None) -> None:
        self._client, self._name = client, name
        if not client.collection_exists(name):
            known = ", ".join(sorted(one.name for one in client.get_collections().collections))
            raise InputError(f"no collection '{name}': choose of {known or 'none'}")
        found = client.get_collection(name).config.params.vectors
        named = sorted(found) if isinstance(found, dict) else []
        if (vector or named) and vector not in named and not (vector is None and len(named) == 1):
            raise InputError(f"its vectors are {', '.join(named) or 'without a name'}: choose with ?vector=NAME")
        self._vector = vector or (named[0] if named else None)

    def state(self) -> str:
        return str(self.count())

    def count(self) -> int:
        return int(self._client.count(self._name, exact=True).count)

    def page(self, after: Any, rows: int) -> Page:
        if after == _END:
            return Page([], [], matrix([]), _END)
        wanted = [self._vector] if self._vector else True
        found, following = self._client.scroll(self._name, limit=rows, offset=after, with_vectors=wanted)
        vectors = [point.vector.get(self._vector) if self._vector else point.vector for point in found]
        keys = [str(point.id) for point in found]
        return Page(
            keys, [point.payload or {} for point in found], matrix(vectors), _END if following is None else following
        )


@contextmanager
def _opened(url: StoreUrl) -> Iterator[OpenStore]:
    from qdrant_client import QdrantClient

    path = PurePosixPath(url.parts.path)
    if url.parts.scheme.endswith("+file"):
        client = QdrantClient(path=str(path.parent))
    else:
        secure = url.parts.scheme.endswith("+https")
        address = f"{'https' if secure else 'http'}://{url.parts.hostname}:{url.parts.port or 6333}"
        client = QdrantClient(url=address, api_key=os.environ.get(_KEY))
    with closing(client):
        yield _Collection(client, path.name, url.options.get("vector"))


def _faults() -> tuple[type[Exception], ...]:
    from qdrant_client.http.exceptions import ApiException

    return (ApiException, OSError, ValueError)


STORE = VectorStore(
    package="qdrant-client",
    example="qdrant://127.0.0.1:6333/images",
    options=("vector",),
    opened=_opened,
    faults=_faults,
)
