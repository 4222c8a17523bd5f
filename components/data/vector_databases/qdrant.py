"""Qdrant: `qdrant://host:6333/collection`, `qdrant+https://...`, or a folder of its client, `qdrant+file:///...`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import PurePosixPath
from typing import Any

from components.core.system.errors import InputError
from components.data.vector_databases.store import OpenStore, Page, StoreUrl, VectorStore

_KEY = "QDRANT_API_KEY"
_END = "end"
"""Stands for the page behind the last one; points have numbers or UUIDs."""


class _Collection:
    def __init__(self, client: Any, name: str, vector: str | None, where: str | None) -> None:
        self._client, self._name, self._filter = client, name, None if where is None else _filter(where)
        if not client.collection_exists(name):
            known = ", ".join(sorted(one.name for one in client.get_collections().collections))
            raise InputError(f"no collection '{name}': choose of {known or 'none'}")
        found = client.get_collection(name).config.params.vectors
        named = sorted(found) if isinstance(found, dict) else []
        if (vector or named) and vector not in named and not (vector is None and len(named) == 1):
            raise InputError(f"its vectors are {', '.join(named) or 'without a name'}: choose with vector=NAME")
        self._vector = vector or (named[0] if named else None)

    def count(self) -> int:
        return int(self._client.count(self._name, count_filter=self._filter, exact=True).count)

    def page(self, after: Any, rows: int) -> Page:
        if after == _END:
            return Page.of([], [], [], _END)
        wanted = [self._vector] if self._vector else True
        found, following = self._client.scroll(
            self._name, scroll_filter=self._filter, limit=rows, offset=after, with_vectors=wanted
        )
        # A point without vectors has an empty mapping.
        vectors = [
            point.vector.get(self._vector) if isinstance(point.vector, dict) else point.vector for point in found
        ]
        keys = [str(point.id) for point in found]
        return Page.of(
            keys, [point.payload or {} for point in found], vectors, _END if following is None else following
        )


def _filter(where: str) -> Any:
    """`field=value`, or a filter of Qdrant in JSON."""
    from pydantic import ValidationError
    from qdrant_client.models import FieldCondition, Filter, MatchValue

    field, is_equation, value = (part.strip() for part in where.partition("="))
    try:
        if where.lstrip().startswith("{"):
            return Filter.model_validate_json(where)
    except ValidationError as error:
        raise InputError(f"where={where}: {error.errors()[0]['msg']}") from None
    if not is_equation or not field:
        raise InputError(f"where={where}: write it as FIELD=VALUE, or as a filter of Qdrant in JSON")
    return Filter(should=[FieldCondition(key=field, match=MatchValue(value=one)) for one in _values(value)])


def _values(text: str) -> list[bool | int | str]:
    """The values that a text may mean: only itself in quotation marks."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return [text[1:-1]]
    if text in ("true", "false"):
        return [text, text == "true"]
    return [text, int(text)] if re.fullmatch(r"[-+]?\d{1,18}", text) else [text]


@contextmanager
def _opened(url: StoreUrl) -> Iterator[OpenStore]:
    from qdrant_client import QdrantClient

    path = PurePosixPath(url.parts.path)
    if url.parts.scheme.endswith("+file"):
        client = QdrantClient(path=str(path.parent))
    else:
        secure = url.parts.scheme.endswith("+https")
        if not url.parts.hostname:
            raise InputError(f"the URL has no host: write it as {STORE.example}")
        address = f"{'https' if secure else 'http'}://{url.parts.hostname}:{url.parts.port or 6333}"
        client = QdrantClient(url=address, api_key=os.environ.get(_KEY))
    with closing(client):
        yield _Collection(client, path.name, url.options.get("vector"), url.options.get("where"))


def _faults() -> tuple[type[Exception], ...]:
    from qdrant_client.http.exceptions import ApiException

    return (ApiException, OSError, ValueError)


STORE = VectorStore(
    package="qdrant-client",
    example="qdrant://127.0.0.1:6333/images",
    options=("vector", "where"),
    opened=_opened,
    faults=_faults,
)
