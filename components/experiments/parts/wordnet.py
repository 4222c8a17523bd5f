"""Perturbations of a caption's characters and words, with the rates of COCO-TP's released code.

Severity s stands for a rate of 0.05 s (github.com/Jielin-Qiu/MM_Robustness, perturb_COCO_TP.py). Characters change in
that share of a caption's words, at least in one, and in 0.3 of a word's characters, as in nlpaug by default; words
change in that share, at least one, as in EDA. Whole sentences are not perturbed. Three things differ from the released
code: a key's neighbours are letters only, words have no part of speech, and no sentence encoder rejects large changes.

Synonyms come from WordNet's database files, by own code: nltk's reader (3.10) also requires nltk's download of WordNet,
and the package wn only reads WN-LMF files.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from components.core.system.errors import InputError

T = TypeVar("T")
Draw = np.random.Generator
Synonyms = Callable[[str], Sequence[str]]
Perturb = Callable[[str, float, Draw], str]
"""Caption, rate and generator -> perturbed caption."""

_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_LOOK_ALIKES = ("089oOD", "147lI", "2zZ", "58", "6b", "8sS@&", "9g", "ou", "rk", "CG", "ODU", "EB")
"""A character, and the characters that optical recognition confuses it with."""
_PUNCTUATION = ".,!?;:"
_CHARACTERS = string.ascii_letters + string.digits
_SHARE, _MOST = 0.3, 10
"""nlpaug's share of a word's characters, and its maximum of changed characters or words."""


def perturbations(synonyms: Synonyms | None = None) -> dict[str, Perturb]:
    """Name in the paper's table B.5 -> perturbation; those with synonyms only if `synonyms` is given."""
    keys, alike = _neighbours(), _look_alikes()
    by_name: dict[str, Perturb] = {
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
        by_name["synonym_replacement"] = lambda text, rate, draw: _synonym_replacement(text, rate, draw, synonyms)
        by_name["word_insertion"] = lambda text, rate, draw: _word_insertion(text, rate, draw, synonyms)
    return by_name


def perturbed(text: str, perturb: Perturb, severity: int, seed: int) -> str:
    """`text` perturbed at `severity` from 1, depending only on the seed, the severity and the text."""
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
            # From the back, so that a change does not move later places.
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
    """Every word is deleted with probability `rate`, but at least one is kept."""
    words = text.split(" ")
    kept = [word for word, chance in zip(words, draw.random(len(words)), strict=True) if chance >= rate]
    return " ".join(kept or _some(words, 1, draw))


def _insert_punctuation(text: str, rate: float, draw: Draw) -> str:
    """A punctuation mark before a random number of words, from one to the share `rate`."""
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
    """Character -> its look-alikes, in both directions."""
    alike: dict[str, str] = {}
    for group in _LOOK_ALIKES:
        for one, other in [pair for char in group[1:] for pair in ((group[0], char), (char, group[0]))]:
            alike[one] = alike.get(one, "") + ("" if other in alike.get(one, "") else other)
    return alike


POS = ("noun", "verb", "adj", "adv")
_ENDINGS = {
    "noun": (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("men", "man"),
             ("s", "")),
    "verb": (("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""), ("s", "")),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}  # fmt: skip
"""Endings that WordNet's own look-up removes (manual page morphy(7WN))."""


@dataclass(frozen=True)
class WordNet:
    """A WordNet database in memory, all by part of speech.

    `senses` are the places of each lemma's synsets in the data file, most frequent first; `exceptions` the lemmas of
    irregular forms; `data` the bytes of the data file.
    """

    folder: Path
    senses: dict[str, dict[str, tuple[int, ...]]]
    exceptions: dict[str, dict[str, tuple[str, ...]]]
    data: dict[str, bytes]

    def synonyms(self, word: str) -> list[str]:
        """Other words of all synsets of `word`, most frequent senses first; compounds have spaces."""
        words: dict[str, None] = {}
        for pos in POS:
            lemmas = self._lemmas(word.lower(), pos)
            for lemma in lemmas:
                for place in self.senses[pos].get(lemma, ()):
                    words |= dict.fromkeys(self._members(pos, place))
            for lemma in lemmas:
                words.pop(lemma.replace("_", " "), None)
        words.pop(word.lower(), None)
        return list(words)

    def _lemmas(self, form: str, pos: str) -> list[str]:
        """Lemmas in the index: the form itself, irregular lemmas, and stems without regular endings."""
        regular = (form.removesuffix(ending) + new for ending, new in _ENDINGS[pos] if form.endswith(ending))
        candidates = dict.fromkeys([form, *self.exceptions[pos].get(form, ()), *regular])
        return [lemma for lemma in candidates if lemma in self.senses[pos]]

    def _members(self, pos: str, place: int) -> list[str]:
        """Words of the synset at byte `place`: `offset lex_file type count(hex) word id word id ...` (wndb(5WN))."""
        fields = self.data[pos][place : self.data[pos].find(b"\n", place)].decode("utf-8", "replace").split(" ")
        try:
            if int(fields[0]) != place:
                raise ValueError(fields[0])
            words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        except (ValueError, IndexError):
            raise InputError(f"{self.folder}: data.{pos} does not fit index.{pos}: fetch both again") from None
        # Adjectives may have a syntactic marker, such as "galore(ip)".
        return [word.partition("(")[0].replace("_", " ").lower() for word in words]


def read_wordnet(folder: Path) -> WordNet:
    """Read `index.*`, `data.*` and, if they exist, `*.exc` for nouns, verbs, adjectives and adverbs."""
    senses, exceptions, data = {}, {}, {}
    for pos in POS:
        try:
            senses[pos] = dict(map(_index_line, _lines(folder / f"index.{pos}")))
            data[pos] = (folder / f"data.{pos}").read_bytes()
            irregular = folder / f"{pos}.exc"
            rows = [line.split() for line in _lines(irregular)] if irregular.exists() else []
            exceptions[pos] = {row[0]: tuple(row[1:]) for row in rows}
        except (OSError, UnicodeDecodeError, ValueError, IndexError) as error:
            raise InputError(
                f"{folder} is not a WordNet database ({error}): put the files of its dict/ folder there"
            ) from None
    return WordNet(folder, senses, exceptions, data)


def _lines(path: Path) -> list[str]:
    """Lines of a database file without the licence, whose lines begin with a space."""
    return [line for line in path.read_text("utf-8").split("\n") if line.strip() and not line.startswith(" ")]


def _index_line(line: str) -> tuple[str, tuple[int, ...]]:
    """`lemma pos synset_count ...  place place ...` (wndb(5WN)): the last `synset_count` fields are the places."""
    fields = line.split()
    count = int(fields[2])
    if count < 1 or len(fields) < 3 + count:
        raise ValueError(f"line '{line[:40]}'")
    return fields[0], tuple(int(field) for field in fields[-count:])
