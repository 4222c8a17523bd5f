"""The teacher sets for captions of photographs: written by hand, on captions that are in no data set."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from components.captions.prompting.inputs.sources import short_captions
from components.core.text import content_words, new_words, normalised
from components.validation.rules.checks.numbers_and_names import find_lost_name, find_lost_number
from components.validation.rules.tables.negations import CUES

REPO = Path(__file__).parents[3]
ASSETS = REPO / "components" / "students" / "assets" / "photographs"
FLICKR8K = REPO.parent / "shared" / "data" / "flickr8k" / "Flickr8k.token.txt"
MOST_ALIKE = 0.7
"""Words that two captions share, of all of either: people's captions of one photograph seldom have as many."""
_TOGETHER = 100

Row = dict[str, str]


@cache
def _rows(name: str) -> tuple[Row, ...]:
    with (ASSETS / f"{name}.tsv").open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream, delimiter="\t", strict=True))


def _paraphrases() -> tuple[Row, ...]:
    return _rows("teacher")


def _edits(task: str) -> list[Row]:
    return [row for row in _rows("teacher_edits") if row["task"] == task]


def _texts() -> list[str]:
    rows = (*_paraphrases(), *_rows("teacher_edits"))
    return [text for row in rows for column, text in row.items() if text and column != "task"]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.casefold()))


def test_columns_and_counts() -> None:
    assert all(list(row) == ["caption", "paraphrase_1", "paraphrase_2"] for row in _paraphrases())
    assert all(list(row) == ["task", "caption", "other_caption", "answer"] for row in _rows("teacher_edits"))
    assert len(_paraphrases()) >= 600
    assert Counter(row["task"] for row in _rows("teacher_edits")) == {"negate_semclip": 150, "difference": 150}


def test_nothing_is_written_twice() -> None:
    for column in ("caption", "paraphrase_1", "paraphrase_2"):
        assert Counter(normalised(row[column]) for row in _paraphrases()).most_common(1)[0][1] == 1
    for task in ("negate_semclip", "difference"):
        for column in ("caption", "answer"):
            assert Counter(normalised(row[column]) for row in _edits(task)).most_common(1)[0][1] == 1


def test_answers_are_plain_sentences() -> None:
    answers = [row[column] for row in _paraphrases() for column in ("paraphrase_1", "paraphrase_2")]
    answers += [row["answer"] for row in _rows("teacher_edits")]
    for answer in answers:
        assert answer.isascii(), answer
        assert answer == " ".join(answer.split()), answer
        assert 3 <= len(answer.split()) <= 30, answer
        assert re.fullmatch(r"[A-Z][^|\"\t]*[A-Za-z0-9]\.", answer), answer


def test_paraphrases_keep_numbers_and_names_and_bring_new_words() -> None:
    for row in _paraphrases():
        caption, first, second = row.values()
        for text, source in ((first, caption), (second, first), (second, caption)):
            assert find_lost_number(text, source) is None, row
            assert find_lost_name(text, source) is None, row
            assert normalised(text) != normalised(source), row
        assert min(new_words(second, first), new_words(second, caption)) >= 2, row


def test_frames_are_varied() -> None:
    for column in ("paraphrase_1", "paraphrase_2"):
        openings = Counter(" ".join(row[column].split()[:2]).lower() for row in _paraphrases())
        assert openings.most_common(1)[0][1] < 0.12 * len(_paraphrases()), openings.most_common(3)


def test_most_captions_are_such_as_paraclip_asks_about() -> None:
    asked = [row for row in _paraphrases() if short_captions({"caption": row["caption"]}) is None]
    assert len(asked) > 0.9 * len(_paraphrases())


def test_negations_deny() -> None:
    assert [row for row in _edits("negate_semclip") if not CUES.search(row["answer"])] == []


def test_differences_tell_of_both_captions_and_of_the_first_one_first() -> None:
    for row in _edits("difference"):
        said, one, other = (content_words(row[name]) for name in ("answer", "caption", "other_caption"))
        assert said & (one - other), row
        assert said & (other - one), row
        assert len(row["answer"]) >= 60, row
        places = re.findall(r"\b(?:first|second)\b", row["answer"])
        assert places == sorted(places), row


@pytest.mark.skipif(not FLICKR8K.is_file(), reason=f"{FLICKR8K} is absent: nothing to compare the captions with")
def test_no_text_is_a_caption_of_flickr8k_or_nearly_one() -> None:
    with FLICKR8K.open(encoding="utf-8") as stream:
        published = [line.rstrip("\n").partition("\t")[2] for line in stream]
    assert {normalised(text) for text in _texts()} & {normalised(text) for text in published} == set()
    own, theirs = _counted([_words(text) for text in _texts()], [_words(text) for text in published])
    sizes = np.asarray(own.sum(1)), np.asarray(theirs.sum(1)).T
    near = []
    for start in range(0, own.shape[0], _TOGETHER):
        rows = slice(start, start + _TOGETHER)
        shared = (own[rows] @ theirs.T).toarray()
        alike = shared / (sizes[0][rows] + sizes[1] - shared)
        near += [_texts()[start + row] for row in np.flatnonzero(alike.max(1) > MOST_ALIKE)]
    assert near == []


def _counted(own: list[set[str]], theirs: list[set[str]]) -> tuple[csr_matrix, csr_matrix]:
    """One row per text and one column per word, `1` where the text has the word."""
    columns = {word: column for column, word in enumerate(sorted(set().union(*own, *theirs)))}

    def rows(texts: list[set[str]]) -> csr_matrix:
        ends = np.cumsum([0, *map(len, texts)])
        places = [columns[word] for words in texts for word in sorted(words)]
        return csr_matrix((np.ones(len(places), np.float32), places, ends), (len(texts), len(columns)))

    return rows(own), rows(theirs)
