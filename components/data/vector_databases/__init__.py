"""Databases of vectors that `cliptune init --index` reads, one file each; the file's name is the URL's scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.core.system.discovery import file_names, find

if TYPE_CHECKING:
    from components.data.vector_databases.store import VectorStore


def find_store(scheme: str) -> VectorStore:
    """The database of a URL's scheme; raises InputError with a list of the databases if there is none."""
    store: VectorStore = find(__name__, file_names(__path__, skip=("store", "copying")), scheme, "STORE", "--index")
    return store
