"""Captions made of fields: `title, brand, color`, or a template such as `{title}[ by {brand}], {price:.2f} EUR`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from components.core.system.errors import InputError
from components.data.source import UnusableError

_TOKENS = re.compile(
    r"(?P<twice>\{\{|\}\}|\[\[|\]\])|\{(?P<field>[^{}]*)\}|(?P<bracket>[\[\]{}])|(?P<words>[^\[\]{}]+)"
)
_SPEC = re.compile(r"(.?[<>^=])?[-+ ]?#?0?\d{0,2}[,_]?(\.\d{1,2})?[bcdeEfFgGnosxX%]?")
"""Formats of Python, no wider than 99 letters."""
_SEPARATORS = re.compile(r"[\s,;:./|·•–—-]*")
_AT_ENDS = " ,;-–|"
_PAIRS = (("(", ")"), ("[", "]"), ('"', '"'), ("«", "»"), ("“", "”"))


@dataclass(frozen=True)
class _Field:
    name: str
    spec: str


@dataclass(frozen=True)
class _Optional:
    parts: tuple[str | _Field, ...]


class TextTemplate:
    """The text of `prepare.text`.

    `{metadata.brand}` is a field in a field. A list of texts is joined by commas. A missing value is left out with the
    words before it, and so is the whole of a part in brackets that lacks a value.

    Attributes:
        columns: the names of the fields.

    >>> TextTemplate("{title} by {brand}, {color}").of({"title": "Mug", "brand": None, "color": "red"})
    'Mug, red'
    >>> TextTemplate("{title}[ ({size.cm:.1f} cm)]").of({"title": "Mug", "size": {"cm": 8}})
    'Mug (8.0 cm)'
    >>> TextTemplate("title, tags").of({"title": "Mug", "tags": ["red", "new"]})
    'Mug, red, new'
    """

    def __init__(self, text: str) -> None:
        listed = [name.strip() for name in text.split(",")]
        wanted = text if re.search(r"[{}]", text) else ", ".join(f"{{{name}}}" for name in listed if name)
        self._parts = _parsed(text, wanted)
        fields = [one for part in self._parts for one in (part.parts if isinstance(part, _Optional) else (part,))]
        self.columns = tuple(dict.fromkeys(field.name for field in fields if isinstance(field, _Field)))
        if not self.columns:
            raise InputError(
                f"prepare.text '{text}' names no column: write it as 'title, brand' or '{{title}}, {{brand}}'"
            )
        self._is_balanced = _balanced(part for part in self._parts if isinstance(part, str))

    def unknown(self, columns: Collection[str]) -> list[str]:
        """The fields of which `columns` has neither the name nor, for `metadata.brand`, its first part."""
        return [name for name in self.columns if not {name, name.partition(".")[0]} & set(columns)]

    def of(self, row: Mapping[str, Any]) -> str:
        """The caption of a row; empty if it lacks a value that the text needs, see `lacks`."""
        return self._made(row)[0]

    def captions(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """The captions of a row: each text of a list if the template is that field alone; raises as `of`."""
        match self._parts:
            case [_Field(name, "")] if isinstance(texts := value_of(row, name), list | tuple):
                return tuple(one for text in texts if (one := shown(name, _raw(text))))
        return tuple(filter(None, [self.of(row)]))

    def lacks(self, row: Mapping[str, Any]) -> str:
        """Why `of` is empty, for messages."""
        name = self._made(row)[1]
        fix = f"; put the words that go with it in brackets, such as '[ by {{{name}}}]'" if len(self._parts) > 1 else ""
        return f"no value of '{name}', which prepare.text needs{fix}"

    def _made(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """The caption and, if it is empty, the name of a field that lacks its value."""
        made, words, lost, kept = "", "", "", ""
        for part in (*self._parts, ""):
            # Words behind a missing value, such as its unit, would be wrong without it.
            first = part.parts[0] if isinstance(part, _Optional) else part
            if lost and isinstance(first, str) and not _SEPARATORS.fullmatch(first):
                return "", lost
            if isinstance(part, str):
                words += "" if lost and not made else part
            elif value := _filled(part, row):
                made, kept, words, lost = made + words + value, kept + words, "", ""
            elif isinstance(part, _Field):
                words, lost = "", part.name
        if not made or (self._is_balanced and not _balanced(kept + words)):
            return "", next(name for name in self.columns if not shown(name, value_of(row, name)))
        return " ".join((made + words).split()).strip(_AT_ENDS), ""


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or of a field in a field such as `metadata.brand`; None without one."""
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inner = row.get(first) if dot else None
    return value_of(inner, rest) if isinstance(inner, Mapping) else None


def _parsed(text: str, wanted: str) -> list[str | _Field | _Optional]:
    parts: list[str | _Field | _Optional] = []
    inside: list[str | _Field] | None = None
    for token in _TOKENS.finditer(wanted):
        if token["bracket"] == "[" and inside is None:
            inside = []
        elif token["bracket"] == "]" and inside and any(isinstance(part, _Field) for part in inside):
            parts.append(_Optional(tuple(inside)))
            inside = None
        elif token["bracket"]:
            raise InputError(
                f"prepare.text '{text}' is not a template ('{token['bracket']}' alone; double it to show it): write it "
                "as '{title}, {brand}', with brackets around a part that may be missing: '{title}[ by {brand}]'"
            )
        else:
            words = token["words"] if token["twice"] is None else token["twice"][:1]
            (parts if inside is None else inside).append(words or _field(text, token["field"]))
    if inside is not None:
        raise InputError(f"prepare.text '{text}' is not a template (a bracket is not closed): close it, or write [[")
    return parts


def _field(text: str, inner: str) -> _Field:
    name, _, spec = inner.partition(":")
    if not _SPEC.fullmatch(spec) or "!" in name:
        raise InputError(f"prepare.text '{text}': '{inner}' has an unknown format: write it as {{price:.2f}}")
    if not name.strip():
        raise InputError(f"prepare.text '{text}' names no column in {{}}: write it as '{{title}}, {{brand}}'")
    return _Field(name.strip(), spec)


def _filled(part: _Field | _Optional, row: Mapping[str, Any]) -> str:
    """A field's text, or that of an optional part; empty if a value is missing."""
    if isinstance(part, _Field):
        return shown(part.name, value_of(row, part.name), part.spec)
    texts = [one if isinstance(one, str) else _filled(one, row) for one in part.parts]
    return "".join(texts) if all(texts) else ""


def shown(name: str, value: Any, spec: str = "", setting: str = "prepare.text") -> str:
    """The value of field `name` as text; empty for none, NaN and blanks."""
    value = _raw(value)
    if value is None or value == "" or (isinstance(value, float) and not isfinite(value)):
        return ""
    if isinstance(value, Mapping | bytes):
        inner = f"name a field in it, such as '{{{name}.{next(iter(value))}}}'" if value and value != b"" else ""
        kind = "bytes" if isinstance(value, bytes) else "fields"
        fix = inner if kind == "fields" and inner else "leave it out"
        raise InputError(f"{setting}: '{name}' holds {kind}, which are not a text: {fix}")
    if isinstance(value, list | tuple):
        if any(isinstance(_raw(one), list | tuple | Mapping | bytes) for one in value):
            raise InputError(f"{setting}: '{name}' holds a list of {type(value[0]).__name__}, which are not texts")
        return ", ".join(text for one in value if (text := shown(name, one, spec, setting)))
    if spec:
        return " ".join(_formatted(name, value, spec).split())
    return " ".join(str(int(value) if isinstance(value, float) and value.is_integer() else value).split())


def _raw(value: Any) -> Any:
    """The text of a sentence as in COCO's tables, `{"raw": ...}`; other values as they are."""
    return value["raw"] if isinstance(value, Mapping) and isinstance(value.get("raw"), str) else value


def _formatted(name: str, value: Any, spec: str) -> str:
    # Tables of text, such as CSV, have numbers as texts.
    for of in (lambda: value, lambda: int(value), lambda: float(value)):
        try:
            return format(of(), spec)
        except (TypeError, ValueError):
            continue
    raise UnusableError(f"'{name}' is '{str(value)[:40]}', which the format '{spec}' of prepare.text cannot show")


def _balanced(words: Iterable[str]) -> bool:
    """Whether brackets and quotes among the words belong together."""
    counts = Counter("".join(words))
    return all(counts[first] == counts[last] if first != last else not counts[first] % 2 for first, last in _PAIRS)
