"""WordNet's database files: the synonyms of a word.

Own code: nltk's reader (3.10) also requires nltk's download of WordNet, and the package wn only reads WN-LMF files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.core.system.errors import InputError

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
