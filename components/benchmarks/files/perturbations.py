"""Perturbations of a caption's characters and words, with the rates that COCO-TP's released code gives its tools.

Severity s stands for a rate of 0.05 s (github.com/Jielin-Qiu/MM_Robustness, perturb_COCO_TP.py). Characters change in
that share of a caption's words, at least in one, and in 0.3 of a word's characters, as nlpaug does by default; words
change in that share, at least one, as in EDA. nlpaug itself has had no release since 2022, and Styleformer and back
translation need models, so those of sentences are not made here. Three things differ from the released code: a key's
neighbours are letters only, words have no part of speech, and no sentence encoder throws out what changed too much.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Draw = np.random.Generator
Synonyms = Callable[[str], Sequence[str]]
Perturb = Callable[[str, float, Draw], str]
"""Gives a caption, with a rate and a generator, its perturbed form."""

_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LOOK_ALIKES = ("089oOD", "147lI", "2zZ", "58", "6b", "8sS@&", "9g", "ou", "rk", "CG", "ODU", "EB")
"""A character, and what optical recognition takes it for."""
_PUNCTUATION = ".,!?;:"
_CHARACTERS = string.ascii_letters + string.digits
_SHARE, _MOST = 0.3, 10
"""nlpaug's share of a word's characters, and the most characters or words that it changes."""


def perturbations(synonyms: Synonyms | None = None) -> dict[str, Perturb]:
    """Name in the paper's table B.5 -> perturbation; those with synonyms only where `synonyms` is given."""
    keys, alike = _neighbours(), _look_alikes()
    found: dict[str, Perturb] = {
        "keyboard": _characters(lambda word, at, draw: _replaced(word, at, _other(word[at], keys, draw))),
        "ocr": _characters(
            lambda word, at, draw: _replaced(word, at, _other(word[at], alike, draw)), fewest=2, length=1
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
        found["synonym_replacement"] = lambda text, rate, draw: _synonym_replacement(text, rate, draw, synonyms)
        found["word_insertion"] = lambda text, rate, draw: _word_insertion(text, rate, draw, synonyms)
    return found


def perturbed(text: str, perturb: Perturb, severity: int, seed: int) -> str:
    """`text` perturbed at `severity` from 1; what is drawn depends on the seed, the severity and the text alone."""
    return perturb(text, 0.05 * severity, np.random.default_rng([seed, severity, *text.encode("utf-8")]))


def _characters(
    change: Callable[[str, int, Draw], str], fewest: int = 1, length: int = 4
) -> Callable[[str, float, Draw], str]:
    """A perturbation that changes characters, one after another, in some words of at least `length` characters."""

    def perturb(text: str, rate: float, draw: Draw) -> str:
        words = text.split(" ")
        long = [number for number, word in enumerate(words) if len(word) >= length]
        for number in _some(long, _count(rate, len(words)), draw):
            word = words[number]
            # From the back, so that a change moves no place that is still to come.
            for at in sorted(_some(range(len(word)), _count(_SHARE, len(word), fewest), draw), reverse=True):
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
    """Every word goes with probability `rate`; a word stays if all would go."""
    words = text.split(" ")
    kept = [word for word, chance in zip(words, draw.random(len(words)), strict=True) if chance >= rate]
    return " ".join(kept or _some(words, 1, draw))


def _insert_punctuation(text: str, rate: float, draw: Draw) -> str:
    """A mark of its own before one to `rate` of the words, how many is drawn."""
    words = text.split(" ")
    count = int(draw.integers(1, int(rate * len(words) + 1) + 1))
    for at in sorted(_some(range(len(words)), count, draw), reverse=True):
        words.insert(at, _any(_PUNCTUATION, draw))
    return " ".join(words)


def _synonym_replacement(text: str, rate: float, draw: Draw, synonyms: Synonyms) -> str:
    words = text.split(" ")
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    able = sorted({word for word in words if word.lower() not in ENGLISH_STOP_WORDS and synonyms(word)})
    for chosen in _some(able, _count(rate, len(words)), draw):
        other = _some(synonyms(chosen), 1, draw)[0]
        words = [other if word == chosen else word for word in words]
    return " ".join(words)


def _word_insertion(text: str, rate: float, draw: Draw, synonyms: Synonyms) -> str:
    words = text.split(" ")
    able = [word for word in words if synonyms(word)]
    for _ in range(_count(rate, len(words)) if able else 0):
        other = _some(synonyms(_some(able, 1, draw)[0]), 1, draw)[0]
        words.insert(int(draw.integers(len(words) + 1)), other)
    return " ".join(words)


def _count(rate: float, size: int, fewest: int = 1) -> int:
    return min(max(int(rate * size), fewest), _MOST)


def _some(items: Sequence[T], count: int, draw: Draw) -> list[T]:
    """`count` of the items, or all where there are fewer, none twice."""
    return [items[number] for number in draw.permutation(len(items))[:count]]


def _any(characters: str, draw: Draw) -> str:
    return characters[int(draw.integers(len(characters)))]


def _replaced(word: str, at: int, other: str) -> str:
    return word[:at] + other + word[at + 1 :]


def _swapped(word: str, at: int, draw: Draw) -> str:
    """The character and its neighbour on the right change places, the last one with that on its left."""
    left = min(at, len(word) - 2)
    return word[:left] + word[left + 1] + word[left] + word[left + 2 :]


def _other(character: str, table: dict[str, str], draw: Draw) -> str:
    return _any(table[character], draw) if character in table else character


def _neighbours() -> dict[str, str]:
    """Letter -> the letters whose keys touch its own, in both cases; each row is half a key further right."""
    places = {key: (row, column + row / 2) for row, keys in enumerate(_KEYS) for column, key in enumerate(keys)}
    touching = {
        key: "".join(
            other
            for other, (row, column) in places.items()
            if other != key and abs(row - places[key][0]) <= 1 and abs(column - places[key][1]) <= 1
        )
        for key in places
    }
    return touching | {key.upper(): others.upper() for key, others in touching.items()}


def _look_alikes() -> dict[str, str]:
    """Character -> its look-alikes, both ways."""
    found: dict[str, str] = {}
    for group in _LOOK_ALIKES:
        for one, other in [pair for char in group[1:] for pair in ((group[0], char), (char, group[0]))]:
            found[one] = found.get(one, "") + ("" if other in found.get(one, "") else other)
    return found
