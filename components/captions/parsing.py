"""How answers that are more than one line of text are taken apart."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

_END = re.compile(r"Q:|Note:|#\d+:|I hope|Human:|User:", re.IGNORECASE)
_LABEL = re.compile(r"^(?:A|Answer|#\d+):\s*", re.IGNORECASE)
_DECODER = json.JSONDecoder()
_OPENING, _MOST_OBJECTS = re.compile(r'\{\s*"'), 20


def cut(answer: str) -> str | None:
    """The answer on one line, without its label, up to where the model goes on to something else.

    The marks are those of PC-CLIP's released filter (appendix B.2), which also rejects answers with eight empty lines.
    """
    if "\n" * 8 in answer:
        return None
    body = _LABEL.sub("", answer.strip())
    marker = _END.search(body)
    text = re.sub(r"\s+", " ", body[: marker.start()] if marker else body).strip(" \"'`*")
    return text or None


def verdict(answer: str) -> str | None:
    """`yes` or `no`; an answer that says both is a yes, as in SemCLIP's released code, one with neither is none."""
    said = {word.lower() for word in re.findall(r"\b(?:yes|no)\b", answer, re.IGNORECASE)}
    return next((word for word in ("yes", "no") if word in said), None)


def scored_json(answer: str, keys: Sequence[str]) -> str | None:
    """The first JSON object of `answer` that has all of `keys`: text each, and a number from 0 to 1 for `score`.

    It comes back compact, with these keys alone and in their order; whatever stands around it, such as a code fence,
    is left out. A truncated object is none.
    """
    for start in islice(_OPENING.finditer(answer), _MOST_OBJECTS):
        try:
            found, _ = _DECODER.raw_decode(answer, start.start())
        except (ValueError, RecursionError):
            continue
        if all(_is_share(found.get(key)) if key == "score" else _is_text(found.get(key)) for key in keys):
            kept = {key: found[key] if key == "score" else " ".join(found[key].split()) for key in keys}
            return json.dumps(kept, separators=(",", ":"))
    return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
