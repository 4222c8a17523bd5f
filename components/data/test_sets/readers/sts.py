"""Sentence pairs with human similarity scores: STS 2012 to 2016, STS-B and SICK-R, in SentEval's files.

Sentences are split at white space and joined again; the 2013 SMT subset is not part of them (its licence).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from components.core.compute.metrics import Reals
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles, some_of

FOLDER = "sts"
SUBSETS: dict[str, dict[str, int]] = {
    "2012": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    "2013": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "2014": {
        "deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750,
    },
    "2015": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "2016": {
        "answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209,
    },
}  # fmt: skip
"""Year -> SentEval's name of a subset -> scored pairs; the years have 3,108, 1,500, 3,750, 3,000 and 1,186."""
STS_B, SICK = "STSBenchmark/sts-test.csv", "SICK/SICK_test_annotated.txt"
SOURCE = "princeton-nlp/datasets-for-simcse, senteval.tar"
_LICENCE = "that of each source, see the STS wiki; STS-B CC BY-SA 4.0"
_SICK_HEADER = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score"]


@dataclass(frozen=True)
class SentencePairs:
    """Sentence pairs.

    Attributes:
        first, second: their sentences, words separated by single spaces.
        gold: human similarity scores from 0 to 5 `[pairs]`.
    """

    first: list[str]
    second: list[str]
    gold: Reals


def senteval_pairs(files: TestSetFiles, path: str, gold_path: str) -> SentencePairs:
    """One subset of a year in SentEval's layout: a file of sentences and one of scores.

    Pairs without a score are skipped, because they were never annotated.
    """
    sentences, gold = _lines(files, path), _lines(files, gold_path)
    if len(sentences) != len(gold):
        raise InputError(
            f"{files.folder / path} has {len(sentences):,} lines, {gold_path} has {len(gold):,}: fetch both again"
        )
    rows = [[score, *line.split("\t")[:2]] for score, line in zip(gold, sentences, strict=True) if score.strip()]
    return _pairs(files, path, rows)


def tsv_pairs(files: TestSetFiles, path: str) -> SentencePairs:
    """Pairs in one file without header: score, first and second sentence, separated by tabs; no quoting."""
    rows = [line.split("\t") for line in _lines(files, path)]
    return _pairs(files, path, [row for row in rows if row[0].strip()])


def sts_benchmark_pairs(files: TestSetFiles) -> SentencePairs:
    """Pairs of STS-B, whose `.csv` is tab-separated and not quoted: score and sentences in columns 4 to 6 (from 0)."""
    return _pairs(files, STS_B, [line.split("\t")[4:7] for line in _lines(files, STS_B)])


def sick_pairs(files: TestSetFiles) -> SentencePairs:
    """Pairs of SICK: a header, then id, two sentences and the relatedness, separated by tabs."""
    header, *lines = _lines(files, SICK)
    if header.split("\t")[:4] != _SICK_HEADER:
        raise InputError(f"{files.folder / SICK} does not begin with {' '.join(_SICK_HEADER)}: fetch that file")
    fields = (line.split("\t")[1:4] for line in lines)
    return _pairs(files, SICK, [[*row[2:], *row[:2]] for row in fields])


def _lines(files: TestSetFiles, path: str) -> list[str]:
    # Not `splitlines`: sentences may contain characters such as U+0085 that it takes for the end of a line.
    try:
        return (files.folder / path).read_text("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{files.folder / path} is damaged ({error}): fetch it again") from None
    except OSError:
        raise InputError(f"{files.folder / path} cannot be read: put it there") from None


def _pairs(files: TestSetFiles, path: str, rows: Sequence[Sequence[str]]) -> SentencePairs:
    """Those of `rows`, each score, first and second sentence, that are complete."""
    scores = [_score(row[0]) if len(row) >= 3 else None for row in rows]
    bad = [number for number, score in enumerate(scores) if score is None]
    if bad:
        fault = f"{len(bad)} rows are not two sentences and a score from 0 to 5 (row {some_of(bad)}, from 0)"
        files.deviates(f"{path}: {fault}")
    good = [(score, row[1], row[2]) for score, row in zip(scores, rows, strict=True) if score is not None]
    return SentencePairs(
        # SimCSE's SentEval splits at any white space and joins the words again before it embeds them.
        [" ".join(first.split()) for _, first, _ in good],
        [" ".join(second.split()) for _, _, second in good],
        np.array([score for score, _, _ in good], dtype=np.float64),
    )


def _score(text: str) -> float | None:
    try:
        score = float(text)
    except ValueError:
        return None
    return score if 0 <= score <= 5 else None


def read_subset(files: TestSetFiles, year: str, subset: str) -> SentencePairs | None:
    """A subset of a year in the layout that exists; None if neither does."""
    sentences, scores, tsv = _paths(year, subset)
    if (files.folder / sentences).exists():
        return senteval_pairs(files, sentences, scores)
    return tsv_pairs(files, tsv) if (files.folder / tsv).exists() else None


def _paths(year: str, subset: str) -> tuple[str, str, str]:
    """Files of a subset: SentEval's sentences and scores, and the single file of the other layout."""
    folder = f"STS{year[2:]}-en-test"
    tsv = f"{year}/{subset.removeprefix('surprise.')}.test.tsv"
    return f"{folder}/STS.input.{subset}.txt", f"{folder}/STS.gs.{subset}.txt", tsv


def year_files(year: str) -> tuple[RequiredFile, ...]:
    """The files of a year in both layouts, each optional."""
    rows = []
    for subset, count in SUBSETS[year].items():
        sentences, scores, tsv = _paths(year, subset)
        rows += [(sentences, "sentence pairs", SOURCE), (scores, f"scores, {count:,} not empty", SOURCE)]
        rows.append((tsv, f"instead of both: {count:,} rows", "brmson/dataset-sts"))
    return tuple(RequiredFile(path, what, "under 1 MB", _LICENCE, source, optional=True) for path, what, source in rows)


def _tested_year(files: TestSetFiles, year: str) -> Tested:
    """The sentences of all existing subsets."""
    found = [pairs for subset in SUBSETS[year] if (pairs := read_subset(files, year, subset))]
    if not found:
        raise InputError(f"{files.folder} has no pair of STS {year}: fetch {SOURCE}")
    return Tested([text for pairs in found for text in (*pairs.first, *pairs.second)])


def _tested_file(files: TestSetFiles, read: Callable[[TestSetFiles], SentencePairs]) -> Tested:
    pairs = read(files)
    return Tested([*pairs.first, *pairs.second])


STS_B_FILE, SICK_FILE = (
    RequiredFile(path, f"{count:,} pairs", "under 1 MB", licence, SOURCE)
    for path, count, licence in (
        (STS_B, 1379, "CC BY-SA 4.0 and those of the sources"),
        (SICK, 4927, "CC BY-NC-SA 3.0"),
    )
)
TEST_SETS = (
    *(TestSet(f"sts{year[2:]}", FOLDER, year_files(year), partial(_tested_year, year=year)) for year in SUBSETS),
    TestSet("stsb", FOLDER, (STS_B_FILE,), partial(_tested_file, read=sts_benchmark_pairs)),
    TestSet("sickr", FOLDER, (SICK_FILE,), partial(_tested_file, read=sick_pairs)),
)
