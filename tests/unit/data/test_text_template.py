"""Captions made of fields: what is shown, what goes with a missing value, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from components.core.system.errors import InputError
from components.data.text_template import TextTemplate

FULL: dict[str, Any] = {
    "title": "Mug", "brand": "Acme", "price": 7.0, "text_price": "12.5", "tags": ["red", "new"],
    "nothing": float("nan"), "metadata": {"brand": "Inner", "size": {"cm": 8}}, "flat.name": "flat",
    "captions": ["one", " two ", None, ""],
    "sentences": [{"raw": "a mug"}, {"raw": "a cup"}], "zero": 0, "no": False, "blank": " ", "none": None, "empty": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("template", "caption"),
    [
        ("title", "Mug"),
        ("title, brand , price", "Mug, Acme, 7"),
        ("title, nothing, blank, none, empty, brand", "Mug, Acme"),
        ("title, zero", "Mug, 0"),
        ("title, tags", "Mug, red, new"),
        ("{title} ({tags})", "Mug (red, new)"),
        ("{metadata.brand}, {metadata.size.cm} cm", "Inner, 8 cm"),
        ("metadata.brand, title", "Inner, Mug"),
        ("{flat.name}", "flat"),
        ("{title} for {price:.2f} EUR", "Mug for 7.00 EUR"),
        ("{text_price:.2f}", "12.50"),
        ("{title:>5}!", "Mug!"),
        # A missing value is left out with the words before it ...
        ("{title} by {none}, {tags}", "Mug, red, new"),
        ("{none}, {title}", "Mug"),
        ("{none} {title}", "Mug"),
        ("{title} by {none}", "Mug"),
        # ... and a part in brackets as a whole.
        ("{title}[ (by {none})] for {price} EUR", "Mug for 7 EUR"),
        ("{title}[ (by {brand})][ for {nothing} EUR]", "Mug (by Acme)"),
        ("[{none}: ]{title}", "Mug"),
        ("{title} [[{price}]] {{x}}", "Mug [7] {x}"),
        # Without a value in front of these words, the text would be wrong: no caption.
        ("{title} (by {none}) for {price} EUR", ""),
        ("{title} for {none} EUR", ""),
        ("{none} by {brand}", ""),
        ("{title} (by {none}, {price})", ""),
        ("{none}[ by {brand}]", ""),
        ("{none}", ""),
        ("[{none}]", ""),
    ],
)
def test_captions(template: str, caption: str) -> None:
    made = TextTemplate(template)
    assert made.of(FULL) == caption
    assert made.captions(FULL) == ((caption,) if caption else ())
    if not caption:
        assert "no value of 'none', which prepare.text needs" in made.lacks(FULL)


def test_lists_are_several_captions_and_unknown_fields_are_listed() -> None:
    assert TextTemplate("captions").captions(FULL) == ("one", "two")
    assert TextTemplate("{sentences}").captions(FULL) == ("a mug", "a cup")
    assert TextTemplate("{captions}!").captions(FULL) == ("one, two!",)
    made = TextTemplate("{metadata.brand} {title} {colour}")
    assert made.unknown(["metadata", "title"]) == ["colour"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{title", "is not a template"),
        ("title}", "is not a template"),
        ("{title}[ by {brand}", "is not a template"),
        ("{title}]", "is not a template"),
        ("{title}[ by Acme]", "is not a template"),
        ("{title}[ by [{brand}]]", "is not a template"),
        ("{} {}", "names no column"),
        ("", "names no column"),
        ("{price:title}", "unknown format"),
        ("{price:999999999}", "unknown format"),
        ("{price!r}", "unknown format"),
    ],
)
def test_a_wrong_template_is_refused(template: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        TextTemplate(template)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("title, metadata", r"'metadata' holds fields, which are not a text: name a field in it, .*metadata\.brand"),
        ("{title} {nested}", "'nested' holds a list of dict"),
        ("raw", "'raw' holds bytes"),
        ("{title:.2f}", r"'title' is 'Mug', which the format '\.2f' of prepare\.text cannot show"),
    ],
)
def test_what_cannot_be_shown_is_refused(template: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextTemplate(template).of(FULL | {"nested": [{"a": 1}], "raw": b"x"})
