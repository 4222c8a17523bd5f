"""Reads the fields of a row, for all sources: its captions, its split and the product that it shows.

The rows of a file that lists pictures become pairs whose pictures are not read yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from components.core.pictures.embedding_files import CAPTIONS
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.data.source import EmptyRowError, Pair, Sample, Unusable, UnusableError, split_of_word
from components.data.text_template import TextTemplate, shown, value_of

Row = tuple[str, Mapping[str, Any]]
"""Its place in the file, and its fields by column: `image` names the picture."""
SPLIT = "split"
_LETTERS_PER_WORD = 20
"""Most letters per word on average, with blanks: a tokenizer takes quadratic time for letters without a blank."""


@dataclass(frozen=True)
class RowTexts:
    """The captions of a row, at least one, not checked yet; its split as published or empty; its product or empty."""

    captions: tuple[str, ...]
    split: str
    item: str


@dataclass(frozen=True)
class RowFields:
    """The fields that `prepare.text`, `prepare.item` and `prepare.image` name.

    Attributes:
        captions: possible names of the field with the caption, or captions, without a template.
        stamp: changes with the settings.
        is_lenient: whether a row may lack its caption and have any split, and has one caption at most: texts of a list
            that the template names are joined.
    """

    template: TextTemplate | None = None
    item: str | None = None
    image: str | None = None
    captions: tuple[str, ...] = CAPTIONS
    stamp: str = ""
    is_lenient: bool = False

    @classmethod
    def of(cls, settings: Prepare, captions: tuple[str, ...] = CAPTIONS) -> RowFields:
        """The fields that the settings name; raises `InputError` if the template is wrong."""
        template = TextTemplate(settings.text) if settings.text is not None else None
        named = f"{settings.text} {settings.item} {settings.image}"
        return cls(template, settings.item, settings.image, captions, named)

    def required(self) -> dict[str, tuple[str, ...]]:
        """What rows must have, as messages name it, -> columns of which one must be there."""
        texts = self.template.columns if self.template is not None else ()
        named = {name: (name, name.partition(".")[0]) for name in (*texts, self.item, self.image) if name is not None}
        return {**({} if texts or self.is_lenient else {self.captions[0]: self.captions}), **named}

    def columns(self, place: object, known: Collection[str], given: Collection[str] = ()) -> list[str]:
        """The columns of a table that are read: `given`, and those of captions, item and split."""
        found = found_columns(place, known, self.required())
        return list(dict.fromkeys([*given, *found.values(), *([SPLIT] if SPLIT in known else [])]))

    def caption_in(self, known: Collection[str]) -> str | None:
        """The column of captions; None without one."""
        return next((name for name in self.captions if name in known), None)

    def read(self, place: str, row: Mapping[str, Any], split: str = "") -> RowTexts:
        """The texts of a row; `split` is that of rows that name none.

        Raises:
            UnusableError: its split is unknown, or it has no caption.
            InputError: a field cannot be shown as text.
        """
        if not (captions := self._captions(row)) and not self.is_lenient:
            why = "write or remove it" if self.template is None else self.template.lacks(row)
            raise EmptyRowError(f"{place} has an empty caption: {why}")
        item = "" if self.item is None else shown(self.item, value_of(row, self.item), setting="prepare.item")
        if self.is_lenient:
            return RowTexts(tuple(map(str.strip, captions[:1])), str(row.get(SPLIT) or split), item)
        return RowTexts(captions, split_of_word(place, row.get(SPLIT)) or split, item)

    def _captions(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        if self.template is not None:
            return tuple(filter(None, [self.template.of(row)])) if self.is_lenient else self.template.captions(row)
        value = row.get(self.caption_in(row) or "")
        texts = value if isinstance(value, list | tuple) else [value]
        texts = [text.get("raw") if isinstance(text, Mapping) else text for text in texts]
        return tuple(text for text in texts if isinstance(text, str) and text.strip())


def found_columns(
    place: object, known: Collection[str], required: Mapping[str, tuple[str, ...]], fix: str = ""
) -> dict[str, str]:
    """Required role -> the first of its columns that is there; raises as `RowFields.columns`."""
    found = {name: next((one for one in names if one in known), None) for name, names in required.items()}
    if missing := [name for name, column in found.items() if column is None]:
        name = required[missing[0]][0]
        options = {CAPTIONS[0]: ", or name it by --text", "image": ", or name it by --image", "query": ""}
        usual = f"call one {name}{options[name]}" if name in options else "correct --text, --item or --image"
        raise InputError(
            f"{place} has the columns {', '.join(known) or 'of no name'} and none for '{name}': {fix or usual}"
        )
    return {name: column for name, column in found.items() if column is not None}


def usable_captions(place: str, captions: Iterable[str], settings: Prepare) -> Iterator[str | Unusable]:
    """The distinct captions without blanks around them, and reasons in place of those that are empty or too long."""
    for caption in dict.fromkeys(map(str.strip, captions)):
        fault = caption_fault(caption, settings)
        yield Unusable(f"{place} has {fault}", images=0) if fault else caption


def caption_fault(caption: str, settings: Prepare) -> str:
    """Why a caption cannot be used, and the fix; empty if it can."""
    words, longest = len(caption.split()), settings.max_caption_words
    if any("\ud800" <= letter <= "\udfff" for letter in caption):
        return "a caption with half a letter, which is not Unicode: correct or remove it"
    if not any(letter.isprintable() and not letter.isspace() for letter in caption):
        return "an empty caption: write or remove it"
    if words > longest:
        length = f"{words} words"
    elif len(caption) > longest * _LETTERS_PER_WORD:
        length = f"{len(caption)} letters, at most {longest * _LETTERS_PER_WORD} are allowed"
    else:
        return ""
    return f"a caption of {length}: shorten it or raise prepare.max_caption_words (now {longest})"


def listed_pairs(
    file: Path,
    rows: Iterable[Row],
    fields: RowFields,
    settings: Prepare,
    split: str = "",
    *,
    is_weighted: bool = False,
) -> Iterator[Pair | Unusable]:
    """A pair for each caption of the rows of a file, and the rows that are left out.

    A pair's picture is not read yet: its `name` is as the row spells it, its `place` is that of the row.

    Args:
        split: of rows that name none.
        is_weighted: whether `weight` is how often people chose the image, and not how heavy a product is.
    """
    images = dict[str, Sample]()
    for number, row in rows:
        place = f"{file}: {number}"
        try:
            image, texts = _image(place, row), fields.read(place, row, split)
        except UnusableError as fault:
            yield Unusable.by(fault)
            continue
        weight = _weight(place, row.get("weight")) if is_weighted else None
        for caption in usable_captions(f"{place} ({image})", texts.captions, settings):
            if isinstance(caption, Unusable):
                yield caption
                continue
            paraphrase: str | Unusable = ""
            if isinstance(text := row.get("paraphrase"), str) and text.strip():
                (paraphrase,) = usable_captions(f"{place} ({image}): its paraphrase", [text], settings)
            if isinstance(paraphrase, Unusable):
                yield paraphrase
                paraphrase = ""
            if image not in images:
                images[image] = Sample(place, name=image)
            yield Pair(
                texts.split, images[image], caption, paraphrase=paraphrase, weight=weight, item=texts.item or None
            )


def _image(place: str, row: Mapping[str, Any]) -> str:
    image = row.get("image")
    if image is None or image == "" or (isinstance(image, float) and not isfinite(image)):
        raise EmptyRowError(f"{place} names no image: write or remove it")
    if not isinstance(image, str) or any("\ud800" <= letter <= "\udfff" for letter in image):
        raise UnusableError(f"{place} has no text as image: correct or remove it")
    return image


def _weight(place: str, value: Any) -> float:
    if value is None or value == "":
        return 1.0
    try:
        weight = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        weight = float("nan")
    # Sums of such weights stay finite.
    if not 0 < weight <= 1e300:
        raise InputError(f"{place} has weight '{str(value)[:40]}': write a number above 0, or nothing for 1")
    return weight
