"""Finds numbers and names of a source that its paraphrase lost; alt-texts are full of meaningless ones."""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import dropwhile

from components.core.text import content_words

_NOISE = re.compile(r"[_@#/\\]|www\.|\.(?:jpe?g|png|gif|webp|svg|tiff?|bmp|com|net|org|html?)\b", re.IGNORECASE)
"""Marks words that are file names, tags or addresses."""

_DIGITS = re.compile(r"[1-9][0-9]{0,3}|[1-9][0-9]{0,2}(?:,[0-9]{3}){1,2}")
"""A count in digits; a longer one without separators is a code."""

_WHOLE = re.compile(r"(?<![0-9])(?<![0-9][.,])[0-9]{1,9}(?:,[0-9]{3}){0,2}(?![.,]?[0-9])")
_ENDS = ".,;:!?'\"-\u2013\u2014"
_MONTHS = {name.casefold() for name in (*calendar.month_name, *calendar.month_abbr) if name}
_DAYS = {name.casefold() for name in (*calendar.day_name, *calendar.day_abbr)}
_MEDIA = {
    "alamy", "clipart", "download", "flickr", "free", "getty", "gif", "illustration", "image", "images", "istock",
    "jpeg", "jpg", "photo", "photograph", "photography", "photos", "pic", "picture", "pictures", "pinterest", "png",
    "royalty", "shutterstock", "stock", "vector", "video", "wallpaper",
}  # fmt: skip
_LABELS = _MEDIA | {
    "chapter", "code", "dsc", "episode", "fig", "figure", "frame", "id", "img", "item", "lot", "model", "no", "nr",
    "page", "part", "ref", "scan", "season", "sku", "slide", "v", "version", "vol", "volume", "|",
}  # fmt: skip
"""Words before numbers that count nothing in the picture."""

_SCALES = {"x", "\u00d7", "by", "hundred", "thousand", "million", "billion", "dozen"}
"""Words next to digits that are part of something else: sizes of pictures, and numbers half in words."""

_TITLES = {"co", "dr", "inc", "jr", "ltd", "mr", "mrs", "ms", "mt", "prof", "sr", "st", "vs"}
_KINDS = re.compile(r"\b[Aa]n? [a-z]+ ([A-Z]\w+)")
"""Capitalised by mistake, as in "a huge Tortoise"."""
_FIRST = re.compile(r"\W*(?!(?:Big|Huge|Large|Little|Old|Small|Tiny|Young)\b)([A-Z][a-z]+) ([a-z]+)\b")
_BEGINNING = 4
_COMMON_NAMES = {"american", "asian", "christmas", "claus", "dad", "european", "frisbee", "mom", "mum", "santa"}
"""Names of what captions write without capitals, or in other words."""
_NO_NAMES = _MONTHS | _DAYS | _MEDIA | _TITLES
_OTHER_WORDS = {
    2: {"both", "couple", "couples", "double", "dual", "duo", "pair", "pairs", "twin", "twins", "twosome"},
    3: {"threesome", "triad", "trio", "triple", "triplet", "triplets"},
    4: {"foursome", "quartet"},
    5: {"fivesome", "quintet"},
    6: {"sextet"},
}
_DOZENS = re.compile(
    r"\b(?:(?P<times>half|a|one|two|three|four|five|six|seven|eight|nine|ten|[1-9][0-9]{0,2})[\s-]+(?:an?[\s-]+)?)?dozen\b",
    re.IGNORECASE,
)
_POINTED_AT = re.compile(r"\b(?:the|these|those)\s+[^\W\d_]+", re.IGNORECASE)
"""In "behind the two" the number only refers to earlier words."""

_SENTENCES = re.compile('[.!?:;|>\u2022()\\[\\]{}"\u00ab\u00bb\u201c-\u201f]+|\\s[-\u2013\u2014]+\\s')
_PARTS = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")


def find_lost_number(text: str, source: str) -> str | None:
    """`digits` or `word` if a number of `source` is neither in digits nor in words in `text`, else None.

    Only separate numbers from two on matter, not parts of a file name, code, address, price, date or picture size.
    """
    source = _DOZENS.sub(" | ", source)
    wanted = [(number, "digits") for number in standing_digits(source)]
    wanted += [(number, "word") for number in number_words(_POINTED_AT.sub(" | ", source))]
    if not wanted:
        return None
    held = numbers_of(text)
    return next((kind for number, kind in wanted if number not in held), None)


def numbers_of(text: str) -> set[int]:
    """All whole numbers of an English text, in digits or words, also in compounds and in words such as "pair"."""
    text = _in_digits(text)
    words = set(re.findall(r"[^\W\d_]+", text.casefold()))
    held = {int(digits.replace(",", "")) for digits in _WHOLE.findall(text)}
    held |= set(number_words(text.replace("-", " ")))
    return held | {number for number, others in _OTHER_WORDS.items() if words & others}


def find_lost_name(text: str, source: str) -> str | None:
    """`name` if a capitalised word inside a sentence of `source` is not in `text`, else None.

    If most words are capitalised, as in titles, capitals mean nothing, nor do words in capitals only.
    """
    held = {_folded(word) for word in _PARTS.findall(text)}
    held |= {f"{word}s" for word in held} | {word.removesuffix("s") for word in held}
    return "name" if any(_folded(name) not in held for name in _names(source)) else None


def find_added_name(text: str, source: str) -> str | None:
    """`name` if `source` lacks a capitalised word inside a sentence of `text`, and any that begins alike, else None.

    >>> find_added_name("Black headphones by Bose", "Sony headphones in black")
    'name'
    >>> find_added_name("Women from India", "indian women") is None
    True
    """
    begun = {_folded(word)[:_BEGINNING] for word in _PARTS.findall(source)}
    added = set(map(_folded, _names(text))) - _COMMON_NAMES - set(map(_folded, _KINDS.findall(text)))
    # Each word that begins a text is capitalised, but "Sony headphones" and "Bose headphones" name two things.
    if (first := _FIRST.match(source)) and content_words(first[1]) and content_words(first[2]):
        others = re.findall(rf"([A-Z][a-z]+) {first[2]}\b", text)
        added |= {_folded(word) for word in others if content_words(word) and _folded(first[1]) not in text.casefold()}
    return "name" if any({name[:_BEGINNING], name.removesuffix("s")}.isdisjoint(begun) for name in added) else None


def _names(text: str) -> list[str]:
    """The capitalised words inside sentences; none of a text in which most words are capitalised."""
    inside = [word for words in _sentences(text) for word in _after_start(words)]
    names = [word for word in inside if _is_name(word)]
    plain = sum(word.islower() and bool(content_words(word)) for word in inside)
    return names if 2 * plain >= len(names) else []


def _in_digits(text: str) -> str:
    """`text` with its dozens as numbers: "half a dozen" is 6, "a dozen" 12, "two dozen" 24."""

    def number(dozens: re.Match[str]) -> str:
        word = (dozens["times"] or "one").casefold()
        times = 0.5 if word == "half" else int(word) if word.isdigit() else _numbers().get((word,), 1)
        return f" {round(12 * times)} "

    return _DOZENS.sub(number, text)


def _quiet(text: str) -> str:
    """`text` with a bar in place of every noisy word."""
    return " ".join("|" if _NOISE.search(word) else word for word in text.split())


def standing_digits(source: str) -> Iterator[int]:
    """The counts in digits, see `find_lost_number`."""
    bare = (token.strip(_ENDS) for token in _quiet(source.casefold()).split())
    tokens = ["", *filter(None, bare), ""]
    for place, token in enumerate(tokens):
        if not _DIGITS.fullmatch(token):
            continue
        number, before, after = int(token.replace(",", "")), tokens[place - 1], tokens[place + 1]
        is_year = len(token) == 4 and 1900 <= number < 2100
        in_row = before.isdigit() or after.isdigit()
        beside = {before, after} & (_MONTHS | _SCALES)
        if number > 1 and not (is_year or in_row or beside or before in _LABELS):
            yield number


def number_words(text: str) -> Iterator[int]:
    """Numbers from two to a thousand in words, except parts of compounds such as "two-tone"."""
    tokens = re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)*|\|", _quiet(text).casefold())
    words = [word for token in tokens for word in (token.split("-") if _is_number(token) else [token])]
    numbers, place = _numbers(), 0
    while place < len(words):
        lengths = range(min(_longest(), len(words) - place), 0, -1)
        length = next((length for length in lengths if tuple(words[place : place + length]) in numbers), 0)
        if length:
            yield numbers[tuple(words[place : place + length])]
        place += max(1, length)


def _is_number(token: str) -> bool:
    return tuple(token.split("-")) in _numbers()


@cache
def _numbers() -> dict[tuple[str, ...], int]:
    """The English words of the numbers from 2 to 1000, with and without "and"."""
    import inflect

    engine = inflect.engine()
    words = {f"a {scale}": number for scale, number in (("hundred", 100), ("thousand", 1000))}
    for number in range(2, 1001):
        for joint in ("", "and"):
            words[str(engine.number_to_words(str(number), andword=joint))] = number
    return {tuple(re.findall("[a-z]+", text)): number for text, number in words.items()}


@cache
def _longest() -> int:
    return max(map(len, _numbers()))


def _sentences(source: str) -> Iterator[list[str]]:
    for sentence in _SENTENCES.split(_quiet(source)):
        bare = [token for token in sentence.split() if not any(letter.isdigit() for letter in token)]
        yield [part for token in bare for part in _PARTS.findall(token)]


def _after_start(words: list[str]) -> list[str]:
    """`words` without the first one, and without a title like "Wooden Chair" that begins with it."""
    begins_title = bool(words) and bool(content_words(words[0]))
    return list(dropwhile(_is_name, words[1:])) if begins_title else words[1:]


def _is_name(word: str) -> bool:
    folded = _folded(word)
    capitalised = len(re.split("['\u2019]", folded)[0]) > 1 and word[0].isupper() and any(map(str.islower, word))
    return capitalised and folded not in _NO_NAMES and bool(content_words(folded))


def _folded(word: str) -> str:
    """`word` in lower case without accents and possessive."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", word) if not unicodedata.combining(letter))
    return re.sub("['\u2019]s$", "", plain.casefold())
