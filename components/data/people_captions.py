"""Benchmark tables and training rows made of the captions that several people wrote of one picture.

Rules that make negations and swaps are narrow, so that they are rarely wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations

from components.core.tables.records import NEGATION_QUERIES, PARAPHRASE_QUERIES, SWAPS
from components.core.text import content_words
from components.data.source import EvaluationTables, filled

Row = tuple[str, ...]


def evaluation_tables(captions: Mapping[str, Sequence[str]]) -> EvaluationTables:
    """Paraphrased queries, negations and swaps of test images, given by image id."""
    tables = (
        ("paraphrase_queries", PARAPHRASE_QUERIES, _paraphrase_queries),
        ("negations", NEGATION_QUERIES, _negations),
        ("swaps", SWAPS, _swaps),
    )
    return {
        name: filled(table, [row for image, texts in captions.items() for row in rows(image, texts)])
        for name, table, rows in tables
    }


def _paraphrase_queries(image: str, captions: Sequence[str]) -> Iterator[Row]:
    """Every caption as a query, with every other one as its paraphrase: twenty rows of five captions."""
    for query, other in permutations(captions, 2):
        yield image, query, other, "all", "image"


def _negations(image: str, captions: Sequence[str]) -> Iterator[Row]:
    """For each cue, the first caption to which its rule applies; the next caption is the paraphrase."""
    for cue in CUES if len(captions) > 1 else ():
        for place, caption in enumerate(captions):
            if (negation := negated(caption, cue)) is not None:
                yield image, caption, negation, captions[(place + 1) % len(captions)], cue, "all"
                break


def _swaps(image: str, captions: Sequence[str]) -> Iterator[Row]:
    """For each kind, the first caption to which its rule applies; swaps of beings come before swaps of places."""
    relations = [(caption, roles_exchanged(caption), "roles") for caption in captions]
    relations += [(caption, relation_turned(caption), "places") for caption in captions]
    attributes = [(caption, *(attributes_exchanged(caption) or (None, ""))) for caption in captions]
    for kind, swaps in (("relation", relations), ("attribute", attributes)):
        for caption, false, group in swaps:
            if false is not None:
                yield image, caption, false, kind, group
                break


def paraphrase_rows(ids: Sequence[str], captions: Sequence[str]) -> Iterator[tuple[str, int, str, str, str]]:
    """Rows of table `people_paraphrases` of one image's pairs: each caption and the next two.

    So every caption is once in each column. An image with fewer than three captions has no row.
    """
    count = len(captions)
    for place, pair in enumerate(ids if count > 2 else ()):
        yield pair, 0, captions[place], captions[(place + 1) % count], captions[(place + 2) % count]


CUES = ("no", "not", "without")

_SUBJECTS = (
    "babies|baby|bicyclist|biker|birds?|boat|boys?|brunette|bull|cars?|cats?|child|children|climber|couples?|"
    "cows?|crowd|cyclist|dogs?|families|family|female|football|girls?|greyhound|guys?|hiker|horses?|kids?|ladies|lady|"
    "male|man|men|motorcycle|people|person|players?|poodle|puppies|puppy|racer|riders?|runner|skateboarder|skier|"
    "snowboarder|surfer|swimmer|team|terrier|toddler|woman|women"
)
_BEGINS = re.compile(
    rf"^(?:an?|the|one|two|three|four|five|several|some|many)((?: [\w'-]+){{0,3}}? (?:{_SUBJECTS})\b)", re.IGNORECASE
)
"""An article or a number, and soon after it one of the most frequent subjects of captions."""
_GOES_ON = re.compile(r"\b(is|are) (?=[a-z]+ing\b)")
_HAS = re.compile(r"(?<!along )(?<!covered )(?<!filled )(?<!together )\bwith (?=(?:an?|the|his|her|its|their) )")


def negated(caption: str, cue: str) -> str | None:
    """`caption` made false by the word `cue`, one of `CUES`; None if its rule does not apply.

    >>> negated("A dog is running with a stick .", "not")
    'A dog is not running with a stick .'
    >>> negated("Two brown dogs are in the snow", "no")
    'No brown dogs are in the snow'
    >>> negated("A dog is running with a stick .", "without")
    'A dog is running without a stick .'
    """
    if cue == "no":
        negation = _BEGINS.sub(r"No\1", caption, count=1)
    elif cue == "not":
        negation = _GOES_ON.sub(r"\1 not ", caption, count=1)
    else:
        negation = _HAS.sub("without ", caption, count=1)
    return negation if negation != caption else None


_FAMILIES = {
    "colour": "black|blue|brown|gray|green|grey|orange|pink|purple|red|silver|tan|white|yellow",
    "size": "big|huge|large|little|small|tall|tiny",
}
"""Attributes by family; a word of a family describes one thing only."""
_BEINGS = "baby|bird|boy|bull|calf|cat|child|cow|cowboy|dog|girl|guy|horse|kid|lady|man|person|puppy|toddler|woman"
_ACTS = (
    "bites|biting|carries|carrying|catches|catching|chases|chasing|feeds|feeding|follows|following|holds|holding|"
    "jumps over|jumping over|kicks|kicking|leads|leading|leaps over|leaping over|lifts|lifting|pets|petting|pulls|"
    "pulling|pushes|pushing|rides|riding|splashes|splashing|tackles|tackling|tosses|tossing|walks|walking|watches|"
    "watching"
)
"""Verbs for acts of one being on another that are not mutual, unlike hugging or playing with."""
_TWO_BEINGS = re.compile(
    rf"\b({_BEINGS}) (?:is |are )?(?:{_ACTS})(?: an?| the| his| her| another)(?: [\w'-]+){{0,2}}? ({_BEINGS})\b", re.I
)


def attributes_exchanged(caption: str) -> tuple[str, str] | None:
    """`caption` with two attributes of different things exchanged, and their family; None if it has none.

    >>> attributes_exchanged("A black dog chases a man in an orange shirt .")
    ('An orange dog chases a man in a black shirt .', 'colour')
    """
    for family, words in _FAMILIES.items():
        # "Black and white" and "blue-green" are one attribute, and in "in black standing" no thing follows.
        single = re.compile(rf"(?<!and )(?<!, )(?<![\w-])({words}) ([a-z'-]+)", re.I)
        matches = [match for match in single.finditer(caption) if _is_thing(match[2], words)]
        for first, second in combinations(matches, 2):
            if first[1].lower() != second[1].lower() and _stem(first[2]) != _stem(second[2]):
                return _exchanged(caption, first.span(1), second.span(1)), family
    return None


def roles_exchanged(caption: str) -> str | None:
    """`caption` with two beings exchanged, one acting on the other; None if it has no such pair.

    >>> roles_exchanged("A brown dog is chasing a small boy .")
    'A brown boy is chasing a small dog .'
    """
    match = _TWO_BEINGS.search(caption)
    if match is None or match[1].lower() == match[2].lower():
        return None
    return _exchanged(caption, match.span(1), match.span(2))


def relation_turned(caption: str) -> str | None:
    """`caption` with its only relation of place reversed; None if it has none or several.

    >>> relation_turned("A boy stands behind a fence .")
    'A boy stands in front of a fence .'
    """
    # Replacing one of these by the other means the same as exchanging the things that it relates.
    for pair in (("in front of", "behind"), ("above", "below"), ("on top of", "underneath"), ("over", "under")):
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
    """`text` with its two spans exchanged, with the case and article of their new places."""
    (a, b), (c, d) = first, second
    one, other = text[a:b].lower(), text[c:d].lower()
    if text[a].isupper():
        other = other.capitalize()
    return _before(text[:a], other) + other + _before(text[b:c], one) + one + text[d:]


def _before(text: str, word: str) -> str:
    """`text`; an article at its end is adapted to `word`."""
    return re.sub(r"\b(a)n? $", r"\1n " if word[0].lower() in "aeiou" else r"\1 ", text, flags=re.I)
