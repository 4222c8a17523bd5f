"""Languages of texts: which one a text is in, which ones many texts are in, and their names for prompts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

ENGLISH = "en"
MIN_CONFIDENCE = 0.9
"""Confidence from which a detected language counts."""
_LIKELY, _CLEARER = 0.5, 2
"""Confidence from which a caption is taken to be in a language, and how many times as likely as the usual one."""
_NAMES = {
    "ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish",
    "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
_ENGLISH_TOO = {"pcm": ENGLISH, "zxx": ENGLISH}
"""English's creole, which short plain sentences resemble, and text that is not language."""
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile("[A-Za-z\u00aa\u00b5\u00ba\u00c0-\u024f\u1e00-\u1eff\ufb00-\ufb06\uff21-\uff5a]")
_DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
"""Letters of scripts without spaces between words, or with whole syllables: Chinese, Japanese, Korean, Thai."""
_MIN_LETTERS, _MIN_DENSE = 16, 6
_SAMPLE, _LEAST_SHARE = 1000, 0.1


def language_name(code: str) -> str:
    """The English name of a language, for prompts.

    >>> language_name("de"), language_name("xx")
    ('German', 'the language with the code xx')
    """
    return _NAMES.get(code, f"the language with the code {code}")


def identified(text: str) -> str | None:
    """The code of the language of a text; None if it is short or the confidence is below `MIN_CONFIDENCE`."""
    letters = len(_LETTER.findall(text))
    if letters < (_MIN_DENSE if len(_DENSE.findall(text)) > letters / 2 else _MIN_LETTERS):
        return None
    language, confidence = _identifier().classify(text)
    return _ENGLISH_TOO.get(str(language), str(language)) if confidence >= MIN_CONFIDENCE else None


def language_of(text: str, languages: Sequence[str] = ()) -> str | None:
    """The language of a caption: one of `languages`, the most frequent first, or, without any, of those with a name.

    A short text is in the first of `languages` unless another is clearly more likely, and without any in none.

    >>> language_of("Zwei Kinder im Gras", ["en", "de"]), language_of("dog", ["de"]), language_of("dog")
    ('de', 'de', None)
    """
    if len(languages) == 1:
        return languages[0]
    scores: dict[str, float] = dict(_identifier().rank(text))
    best = max(languages or _NAMES, key=lambda code: scores.get(code, 0.0))
    if languages:
        return best if scores.get(best, 0.0) > _CLEARER * scores.get(languages[0], 0.0) else languages[0]
    return best if scores[best] >= _LIKELY else None


def detected(texts: Sequence[str]) -> dict[str, float]:
    """Language -> share of the texts whose language is sure, without languages of less than a tenth; of a sample.

    Empty if no text is long enough.
    """
    step = max(1, len(texts) // _SAMPLE)
    counts = Counter(code for text in texts[::step] if (code := identified(text)) is not None)
    total = counts.total()
    return {code: count / total for code, count in counts.most_common() if count >= _LEAST_SHARE * total}


def latin_share(text: str) -> float:
    """Share of the letters of a text that are Latin; one without letters."""
    letters = _LETTER.findall(text)
    return 1.0 if text.isascii() or not letters else sum(bool(_LATIN.match(one)) for one in letters) / len(letters)


def is_latin(code: str) -> bool:
    """Whether a language is written in Latin letters."""
    return code not in {"ar", "bg", "el", "fa", "he", "hi", "ja", "ka", "ko", "mk", "ru", "sr", "th", "uk", "ur", "zh"}


def word_count(text: str) -> int:
    """The number of words; of scripts without spaces, two letters count as one word.

    >>> word_count("a red dog"), word_count("\u8d64\u3044\u72ac\u304c\u5ea7\u308b")
    (3, 3)
    """
    dense = len(_DENSE.findall(text))
    return len(_DENSE.sub(" ", text).split()) + (dense + 1) // 2


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; of scripts without spaces, every two neighbouring letters."""
    words: list[str] = []
    for word in re.findall(r"[^\W_]+", text.casefold()):
        if _DENSE.search(word):
            words += [word[place : place + 2] for place in range(max(1, len(word) - 1))]
        else:
            words.append(word)
    return words


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
