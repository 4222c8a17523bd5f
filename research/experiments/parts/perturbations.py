"""Perturbations of a caption's characters and words, with the rates of COCO-TP's released code.

Severity s stands for a rate of 0.05 s (github.com/Jielin-Qiu/MM_Robustness, perturb_COCO_TP.py). Characters change in
that share of a caption's words, at least in one, and in 0.3 of a word's characters, as in nlpaug by default; words
change in that share, at least one, as in EDA. Whole sentences are not perturbed. Three things differ from the released
code: a key's neighbours are letters only, words have no part of speech, and no sentence encoder rejects large changes.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Draw = np.random.Generator
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
        "keyboard": _characters(lambda word, at, draw: _replaced(word, at, _any(keys.get(word[at], word[at]), draw))),
        "ocr": _characters(
            lambda word, at, draw: _replaced(word, at, _any(alike.get(word[at], word[at]), draw)), fewest=2, length=1
        ),
        "char_insert": _characters(lambda word, at, draw: word[:at] + _any(_CHARACTERS, draw) + word[at:]),
        "char_replace": _characters(lambda word, at, draw: _replaced(word, at, _any(_CHARACTERS, draw))),
        "char_swap": _characters(_swapped),
        "char_delete": _characters(lambda word, at, draw: _replaced(word, at, "")),
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
    return perturb(text, 0.05 * severity, np.random.default_rng([seed, severity, *text.encode("utf-8")]))


def _characters(change: Callable[[str, int, Draw], str], fewest: int = 1, length: int = 4) -> Perturb:
    """A perturbation that changes characters, one after another, in some words of at least `length` characters."""

    def perturb(text: str, rate: float, draw: Draw) -> str:
        words = text.split(" ")
        long = [number for number, word in enumerate(words) if len(word) >= length]
        for number in _some(long, _count(rate, len(words)), draw):
            size = len(words[number])
            # From the back, so that a change does not move later places.
            for at in sorted(_some(range(size), _count(_SHARE, size, fewest), draw), reverse=True):
                words[number] = change(words[number], at, draw)
        return " ".join(words)

    return perturb


def _word_swap(text: str, rate: float, draw: Draw) -> str:
    words = text.split(" ")
    for _ in range(_count(rate, len(words)) if len(words) > 1 else 0):
        first, second = _some(range(len(words)), 2, draw)
        words[first], words[second] = words[second], words[first]
    return " ".join(words)


def _word_deletion(text: str, rate: float, draw: Draw) -> str:
    """Every word is deleted with probability `rate`, but at least one is kept."""
    words = text.split(" ")
    kept = [word for word, chance in zip(words, draw.random(len(words)), strict=True) if chance >= rate]
    return " ".join(kept or _some(words, 1, draw))


def _insert_punctuation(text: str, rate: float, draw: Draw) -> str:
    """A punctuation mark before a random number of words, from one to the share `rate`."""
    words = text.split(" ")
    count = int(draw.integers(1, int(rate * len(words) + 1) + 1))
    for at in sorted(_some(range(len(words)), count, draw), reverse=True):
        words.insert(at, _any(".,!?;:", draw))
    return " ".join(words)


def _synonym_replacement(text: str, rate: float, draw: Draw, synonyms: Synonyms) -> str:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # type: ignore[import-untyped]

    words = text.split(" ")
    able = sorted({word for word in words if word.lower() not in ENGLISH_STOP_WORDS and synonyms(word)})
    for chosen in _some(able, _count(rate, len(words)), draw):
        (other,) = _some(synonyms(chosen), 1, draw)
        words = [other if word == chosen else word for word in words]
    return " ".join(words)


def _word_insertion(text: str, rate: float, draw: Draw, synonyms: Synonyms) -> str:
    words = text.split(" ")
    able = [word for word in words if synonyms(word)]
    for _ in range(_count(rate, len(words)) if able else 0):
        (other,) = _some(synonyms(_some(able, 1, draw)[0]), 1, draw)
        words.insert(int(draw.integers(len(words) + 1)), other)
    return " ".join(words)


def _count(rate: float, size: int, fewest: int = 1) -> int:
    return min(max(int(rate * size), fewest), _MOST)


def _some(items: Sequence[T], count: int, draw: Draw) -> list[T]:
    """`count` of the items without repetition, or all if there are fewer."""
    return [items[number] for number in draw.permutation(len(items))[:count]]


def _any(characters: str, draw: Draw) -> str:
    return characters[int(draw.integers(len(characters)))]


def _replaced(word: str, at: int, other: str) -> str:
    return word[:at] + other + word[at + 1 :]


def _swapped(word: str, at: int, draw: Draw) -> str:
    """The character and its right neighbour swapped, the last one with its left neighbour."""
    left = min(at, len(word) - 2)
    return word[:left] + word[left + 1] + word[left] + word[left + 2 :]


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
    alike: dict[str, str] = {}
    for one, other in [way for pair in pairs for way in (pair, pair[::-1])]:
        alike[one] = alike.get(one, "") + ("" if other in alike.get(one, "") else other)
    return alike
