"""Negates captions by rule, with "no", "not" or "without"; the rules are so narrow that they seldom go wrong.

A caption says that something is there or happens, so that the same with one "no", "not" or "without" contradicts it.
"""

from __future__ import annotations

import re

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
"""An article or a number, and one of the subjects that captions have most often not far behind it."""
_GOES_ON = re.compile(r"\b(is|are) (?=[a-z]+ing\b)")
_HAS = re.compile(r"(?<!along )(?<!covered )(?<!filled )(?<!together )\bwith (?=(?:an?|the|his|her|its|their) )")


def negated(caption: str, cue: str) -> str | None:
    """`caption` made false by the word `cue`, one of `CUES`; None where its rule does not apply.

    >>> negated("A dog is running with a stick .", "not")
    'A dog is not running with a stick .'
    >>> negated("Two brown dogs are in the snow", "no")
    'No brown dogs are in the snow'
    >>> negated("A dog is running with a stick .", "without")
    'A dog is running without a stick .'
    """
    if cue == "no":
        found = _BEGINS.sub(r"No\1", caption, count=1)
    elif cue == "not":
        found = _GOES_ON.sub(r"\1 not ", caption, count=1)
    else:
        found = _HAS.sub("without ", caption, count=1)
    return found if found != caption else None
