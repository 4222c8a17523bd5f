"""Swaps attributes, beings or places in captions by rule; the rules are so narrow that they seldom go wrong."""

from __future__ import annotations

import re
from itertools import combinations

from components.core.words import content_words

_FAMILIES = {
    "colour": "black|blue|brown|gray|green|grey|orange|pink|purple|red|silver|tan|white|yellow",
    "size": "big|huge|large|little|small|tall|tiny",
}
"""Attributes that say the same kind of thing; a word of a family stands for one thing alone."""
_BEINGS = "baby|bird|boy|bull|calf|cat|child|cow|cowboy|dog|girl|guy|horse|kid|lady|man|person|puppy|toddler|woman"
_ACTS = (
    "bites|biting|carries|carrying|catches|catching|chases|chasing|feeds|feeding|follows|following|holds|holding|"
    "jumps over|jumping over|kicks|kicking|leads|leading|leaps over|leaping over|lifts|lifting|pets|petting|pulls|"
    "pulling|pushes|pushing|rides|riding|splashes|splashing|tackles|tackling|tosses|tossing|walks|walking|watches|"
    "watching"
)
"""What one being does to another and not at once the other to it, as in hugging or playing with."""
_TWO_BEINGS = re.compile(
    rf"\b({_BEINGS}) (?:is |are )?(?:{_ACTS})(?: an?| the| his| her| another)(?: [\w'-]+){{0,2}}? ({_BEINGS})\b", re.I
)
_CONVERSES = (("in front of", "behind"), ("above", "below"), ("on top of", "underneath"), ("over", "under"))
"""To turn such a relation round says the same as to exchange what stands before it and behind."""


def attributes_exchanged(caption: str) -> tuple[str, str] | None:
    """`caption` with two attributes of different things exchanged, and their family; None without such.

    >>> attributes_exchanged("A black dog chases a man in an orange shirt .")
    ('An orange dog chases a man in a black shirt .', 'colour')
    """
    for family, words in _FAMILIES.items():
        # "Black and white" and "blue-green" are one attribute, and "in black standing" has none of what follows.
        alone = re.compile(rf"(?<!and )(?<!, )(?<![\w-])({words}) ([a-z'-]+)", re.I)
        found = [one for one in alone.finditer(caption) if _is_thing(one[2], words)]
        for one, other in combinations(found, 2):
            if one[1].lower() != other[1].lower() and _stem(one[2]) != _stem(other[2]):
                return _exchanged(caption, one.span(1), other.span(1)), family
    return None


def roles_exchanged(caption: str) -> str | None:
    """`caption` with two beings exchanged one of whom does something to the other; None without such.

    >>> roles_exchanged("A brown dog is chasing a small boy .")
    'A brown boy is chasing a small dog .'
    """
    found = _TWO_BEINGS.search(caption)
    if found is None or found[1].lower() == found[2].lower():
        return None
    return _exchanged(caption, found.span(1), found.span(2))


def relation_turned(caption: str) -> str | None:
    """`caption` with its one relation of place turned round; None without such.

    >>> relation_turned("A boy stands behind a fence .")
    'A boy stands in front of a fence .'
    """
    for pair in _CONVERSES:
        for here, there in (pair, pair[::-1]):
            text, times = re.subn(rf"\b{here}(?= (?:an?|the|his|her|its|their|some|one|two) )", there, caption)
            if times == 1:
                return text
    return None


def _is_thing(word: str, family: str) -> bool:
    return bool(content_words(word)) and not word.endswith("ing") and not re.fullmatch(family, word, re.I)


def _stem(noun: str) -> str:
    return noun.lower().rstrip("s")


def _exchanged(text: str, first: tuple[int, int], second: tuple[int, int]) -> str:
    """`text` with its two spans exchanged, written with the case and the article that their places want."""
    (a, b), (c, d) = first, second
    one, other = text[a:b].lower(), text[c:d].lower()
    if text[a].isupper():
        other = other.capitalize()
    return _before(text[:a], other) + other + _before(text[b:c], one) + one + text[d:]


def _before(text: str, word: str) -> str:
    """`text`, where it ends with an article, with the one that `word` wants."""
    return re.sub(r"\b(a)n? $", r"\1n " if word[0].lower() in "aeiou" else r"\1 ", text, flags=re.I)
