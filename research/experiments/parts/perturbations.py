"""Perturbations of a caption's characters and words, with the rates of COCO-TP's released code.

Severity s stands for a rate of 0.05 s (github.com/Jielin-Qiu/MM_Robustness, perturb_COCO_TP.py). Characters change in
that share of a caption's words, at least in one, and in 0.3 of a word's characters (nlpaug's default). Words change in
that share, at least one, as in EDA. Whole sentences are not perturbed. Three things differ from the released
code: a key's neighbours are letters only, words have no part of speech, and no sentence encoder rejects large changes.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

T = TypeVar("T")
Draw = random.Random
Synonyms = Callable[[str], Sequence[str]]
Perturb = Callable[[str, float, Draw], str]
"""Caption, rate and generator -> perturbed caption."""

_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LOOK_ALIKES = ("089oOD", "147lI", "2zZ", "58", "6b", "8sS@&", "9g", "ou", "rk", "CG", "ODU", "EB")
"""A character, and the characters that optical recognition confuses it with."""
_CHARACTERS = string.ascii_letters + string.digits
_SHARE, _MOST = 0.3, 10
"""nlpaug's share of a word's characters, and its maximum of changed characters or words."""


def perturbations(synonyms: Synonyms | None = None) -> dict[str, Perturb]:
    """Name in the paper's table B.5 -> perturbation; those with synonyms only if `synonyms` is given."""
    keys, alike = _neighbours(), _look_alikes()
    by_name: dict[str, Perturb] = {
        "keyboard": _characters(lambda old, draw: draw.choice(keys.get(old, old))),
        "ocr": _characters(lambda old, draw: draw.choice(alike.get(old, old)), fewest=2, length=1),
        "char_insert": _characters(lambda old, draw: draw.choice(_CHARACTERS) + old),
        "char_replace": _characters(lambda old, draw: draw.choice(_CHARACTERS)),
        "char_swap": _characters(None),
        "char_delete": _characters(lambda old, draw: ""),
        "word_swap": _word_swap,
        "word_deletion": _word_deletion,
        "insert_punctuation": _insert_punctuation,
    }
    if synonyms is not None:
        by_name["synonym_replacement"] = partial(_synonym_replacement, synonyms=synonyms)
        by_name["word_insertion"] = partial(_word_insertion, synonyms=synonyms)
    return by_name


def perturbed(text: str, perturb: Perturb, severity: int, seed: int) -> str:
    """`text` perturbed at `severity` from 1, depending only on the seed, the severity and the text."""
    return perturb(text, 0.05 * severity, Draw(f"{seed} {severity} {text}"))


def _characters(change: Callable[[str, Draw], str] | None, fewest: int = 1, length: int = 4) -> Perturb:
    """A perturbation that changes characters in some words of at least `length` characters, or swaps neighbours."""

    def perturb(text: str, rate: float, draw: Draw) -> str:
        words = text.split(" ")
        long = [number for number, word in enumerate(words) if len(word) >= length]
        for number in _some(long, _count(rate, len(words)), draw):
            word = words[number]
            # From the back, so that a change does not move later places.
            for at in sorted(_some(range(len(word)), _count(_SHARE, len(word), fewest), draw), reverse=True):
                # The last character is swapped with its left neighbour.
                left = at if change else min(at, len(word) - 2)
                new = change(word[at], draw) if change else word[left + 1] + word[left]
                word = word[:left] + new + word[left + (1 if change else 2) :]
            words[number] = word
        return " ".join(words)

    return perturb


def _word_swap(text: str, rate: float, draw: Draw) -> str:
    words = text.split(" ")
    for _ in range(_count(rate, len(words)) if len(words) > 1 else 0):
        first, second = draw.sample(range(len(words)), 2)
        words[first], words[second] = words[second], words[first]
    return " ".join(words)


def _word_deletion(text: str, rate: float, draw: Draw) -> str:
    """Every word is deleted with probability `rate`, but at least one is kept."""
    words = text.split(" ")
    return " ".join([word for word in words if draw.random() >= rate] or [draw.choice(words)])


def _insert_punctuation(text: str, rate: float, draw: Draw) -> str:
    """A punctuation mark before a random number of words, from one to the share `rate`."""
    words = text.split(" ")
    count = draw.randint(1, int(rate * len(words) + 1))
    for at in sorted(_some(range(len(words)), count, draw), reverse=True):
        words.insert(at, draw.choice(".,!?;:"))
    return " ".join(words)


def _synonym_replacement(text: str, rate: float, draw: Draw, synonyms: Synonyms) -> str:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # type: ignore[import-untyped]

    words = text.split(" ")
    able = sorted({word for word in words if word.lower() not in ENGLISH_STOP_WORDS and synonyms(word)})
    for chosen in _some(able, _count(rate, len(words)), draw):
        other = draw.choice(synonyms(chosen))
        words = [other if word == chosen else word for word in words]
    return " ".join(words)


def _word_insertion(text: str, rate: float, draw: Draw, synonyms: Synonyms) -> str:
    words = text.split(" ")
    able = [word for word in words if synonyms(word)]
    for _ in range(_count(rate, len(words)) if able else 0):
        words.insert(draw.randint(0, len(words)), draw.choice(synonyms(draw.choice(able))))
    return " ".join(words)


def _count(rate: float, size: int, fewest: int = 1) -> int:
    return min(max(int(rate * size), fewest), _MOST)


def _some(items: Sequence[T], count: int, draw: Draw) -> list[T]:
    """`count` of the items without repetition, or all if there are fewer."""
    return draw.sample(items, min(count, len(items)))


def _neighbours() -> dict[str, str]:
    """Letter -> the letters whose keys touch its own, in both cases; each row is half a key further right."""
    places = {key: (row, column + row / 2) for row, keys in enumerate(_KEYS) for column, key in enumerate(keys)}
    touching = {
        key: "".join(to for to, (a, b) in places.items() if to != key and abs(a - row) <= 1 and abs(b - column) <= 1)
        for key, (row, column) in places.items()
    }
    return touching | {key.upper(): others.upper() for key, others in touching.items()}


def _look_alikes() -> dict[str, str]:
    """Character -> its look-alikes, in both directions."""
    pairs = [(group[0], char) for group in _LOOK_ALIKES for char in group[1:]]
    ways = dict.fromkeys([*pairs, *((other, one) for one, other in pairs)])
    return {char: "".join(other for one, other in ways if one == char) for char, _ in ways}
