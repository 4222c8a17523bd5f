"""Texts tokenised once, kept on disk and memory-mapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from components.core.arrays import mapped_array
from components.core.files import atomic_file, content_hash
from components.core.progress import bar
from components.encoders.adapter.texts.tokens import Tokens

_BLOCK = 4096
_SMALL = 20_000


def cached_tokens(
    texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens], context_length: int, identity: str, folder: Path
) -> Tokens:
    """Token ids `[texts, context_length]`, mapped from `folder`; made there where they are missing.

    Args:
        identity: what the tokenizer is; with the texts it names the file.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / f"{content_hash(identity, str(context_length), *texts)[:32]}.npy"
    if not path.is_file():
        _write(texts, tokenise, context_length, path)
    return mapped_array(path, "delete it and run the stage again, which makes it anew")


def _write(texts: Sequence[str], tokenise: Callable[[Sequence[str]], Tokens], context_length: int, path: Path) -> None:
    shape = (len(texts), context_length)
    with atomic_file(path) as temporary:
        tokens = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.int32, shape=shape)
        progress = bar("tokenise", len(texts), "text") if len(texts) > _SMALL else None
        for start in range(0, len(texts), _BLOCK):
            tokens[start : start + _BLOCK] = tokenise(texts[start : start + _BLOCK])
            if progress is not None:
                progress.update(min(_BLOCK, len(texts) - start))
        if progress is not None:
            progress.close()
        tokens.flush()
