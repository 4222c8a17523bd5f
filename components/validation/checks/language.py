"""Texts in another language than English."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_MIN_LETTERS = 16
_MIN_CONFIDENCE = 0.9
_MAX_FOREIGN_LETTERS = 0.25
_ENGLISH = {"en", "pcm", "zxx"}
"""English, its creole, which short plain sentences resemble, and text that is no language."""

_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile("[A-Za-z\u00aa\u00b5\u00ba\u00c0-\u024f\u1e00-\u1eff\ufb00-\ufb06\uff21-\uff5a]")


def find_foreign(text: str) -> str | None:
    """The code of the language of `text` if that is surely not English, `script` if its letters are not Latin.

    A caption is short and may name a dish or a place in the local language; only a text of at least 16 letters is
    judged, and only by a language that py3langid is sure of at 90% or more.
    """
    letters = _LETTER.findall(text)
    foreign = 0 if text.isascii() else sum(not _LATIN.match(letter) for letter in letters)
    if foreign > _MAX_FOREIGN_LETTERS * len(letters):
        return "script"
    if len(letters) < _MIN_LETTERS:
        return None
    language, confidence = _identifier().classify(text)
    return str(language) if language not in _ENGLISH and confidence >= _MIN_CONFIDENCE else None


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
