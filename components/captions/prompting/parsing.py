"""Parsing of answers: one line, a longer text, a verdict or a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

_END = re.compile(r"\b(?:Q:|Note:|I hope\b|Human:|User:)|#\d+:", re.IGNORECASE)
_LABEL = re.compile(r"^(?:A|Answer|#\d+):\s*", re.IGNORECASE)
_LIST_MARK = re.compile(
    r"^(?:(?:Option|Answer|Caption|Paraphrase|Version)\s+)?\d{1,2}[.):]\s+|^[-*\u2022\u2013]\s+", re.IGNORECASE
)
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb"}
_DECODER = json.JSONDecoder()
_THOUGHT = "(?:think|thinking|thought|thoughts|reasoning)"
_THOUGHT_BEGINS = re.compile(rf"[<\[]{_THOUGHT}[>\]]", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(rf"[<\[]/{_THOUGHT}[>\]]", re.IGNORECASE)
_CHOICE = re.compile(r"\byes\b\W{0,3}(?:\bor\b|/)\W{0,3}\bno\b", re.IGNORECASE)
_VERDICT = re.compile(r"\b(?:yes|no)\b", re.IGNORECASE)
_OPENING, _MOST_OBJECTS = re.compile(r'\{\s*"'), 20


def without_thought(answer: str) -> str:
    """`answer` without the thoughts of a reasoning model; empty where it ends within one.

    Some chat templates open the first thought themselves, so that an answer only closes it.

    >>> without_thought("I could say yes.</think>No"), without_thought("<think>They want")
    ('No', '')
    """
    answer = _THOUGHT_ENDS.split(answer)[-1]
    return _THOUGHT_BEGINS.split(answer)[0].strip()


def cut(answer: str) -> str | None:
    """The answer on one line, without its label, up to where the model continues with something else.

    The marks are those of PC-CLIP's released filter (appendix B.2), which also rejects answers with eight empty lines.
    """
    if "\n" * 8 in answer:
        return None
    body = _LABEL.sub("", "\n".join(lines(answer)).strip())
    marker = _END.search(body)
    return unwrapped(body[: marker.start()] if marker else body) or None


def first_line(answer: str) -> str | None:
    """The first non-empty line, without a list's mark and quotes around it; None when there is none.

    >>> first_line('1. "A dog on a beach."\\nI hope this helps.')
    'A dog on a beach.'
    """
    for line in lines(answer):
        cleaned = unwrapped(_LIST_MARK.sub("", line.strip()))
        if cleaned:
            return cleaned
    return None


def lines(answer: str) -> list[str]:
    """The lines of an answer without the fences around code; only a line feed ends a line."""
    return [line for line in answer.split("\n") if not line.lstrip().startswith("```")]


def unwrapped(text: str) -> str:
    """`text` on one line without marks of emphasis and quotes around all of it; quotes within stay."""
    text = re.sub(r"\s+", " ", text).strip(" `*")
    opening, closing = text[:1], _QUOTES.get(text[:1])
    if closing is not None and _closes_last(text, opening, closing):
        return text[1:].removesuffix(closing).strip(" `*")
    # A last quote without its first one: the beginning was a label or is lost.
    last = text[-1:]
    return text[:-1].rstrip() if last == '"' and text.count('"') == 1 else text


def _closes_last(text: str, opening: str, closing: str) -> bool:
    """Whether the quote that `text` begins with is closed by its last letter or not at all.

    A quote between letters is an apostrophe; the next one after a space opens a quotation within.
    """
    inside = text[1:-1] if text.endswith(closing) and len(text) > 1 else text[1:]
    within = re.search(rf"(?<!\w){re.escape(opening)}|{re.escape(closing)}(?!\w)", inside)
    return within is None or (within.start() > 0 and inside[within.start() - 1].isspace())


def verdict(answer: str) -> str | None:
    """`yes` or `no`; an answer with both is a yes, as in SemCLIP's released code; None without either.

    The words "Yes" or "No" together repeat the question and are not a verdict.

    >>> verdict("No, it says something else."), verdict("I do not know.")
    ('no', None)
    """
    verdicts = {word.lower() for word in _VERDICT.findall(_CHOICE.sub(" ", answer))}
    return next((word for word in ("yes", "no") if word in verdicts), None)


def first_verdict(answer: str) -> str | None:
    """The verdict at the beginning of an answer; only this one counts where the answer was cut."""
    found = re.match(rf"\W*({_VERDICT.pattern})(?!\W{{0,3}}(?:or\b|/))", answer, re.IGNORECASE)
    return found[1].lower() if found else None


def clear_verdict(answer: str) -> str | None:
    """The verdict that an answer begins with, or its only one; None where it has both later, or neither.

    >>> clear_verdict("No: yes, a man, but no dog."), clear_verdict("It is true, yes."), clear_verdict("Say yes or no?")
    ('no', 'yes', None)
    """
    verdicts = {word.lower() for word in _VERDICT.findall(_CHOICE.sub(" ", answer))}
    return first_verdict(answer) or (verdicts.pop() if len(verdicts) == 1 else None)


def scored_json(answer: str, keys: Sequence[str]) -> str | None:
    """The first JSON object of `answer` that has all of `keys`: text each, and a number from 0 to 1 for `score`.

    It is returned compact, with only these keys and in their order, without surrounding text such as a code fence; None
    for a truncated object.
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
