"""Semantic textual similarity: cosines of sentence pairs against human scores, as SimCSE reports them.

STS 2012 to 2016 (Agirre et al.), STS-B (Cer et al. 2017) and SICK-R (Marelli et al. 2014) under the protocol of
SimCSE's changed SentEval, which ParaCLIP (section 4) takes over: no regressor, the pairs of all subsets of a year
pooled into one Spearman correlation ("all"). SentEval's own "mean" and "wmean" over subsets stand beside it. Sentences
are split at white space and joined again; the 2013 SMT subset is not part of it (its licence).

ParaCLIP's average is the plain mean of the seven values `sts12/all/spearman` ... `sts16/all/spearman`,
`stsb/test/spearman` and `sickr/test/spearman`; SimCSE rounds each to two decimals of a per cent first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.published_context import PublishedContext, some_of
from components.benchmarks.protocols.retrieval import mean_spearman, pair_cosines, spearman_by_subset
from components.benchmarks.scores import Correlation, Scores, metrics
from components.core.errors import InputError
from components.core.metrics import Reals

_SICK_HEADER = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score"]


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs.

    Attributes:
        first, second: their sentences, words separated by single spaces.
        gold: how similar people found them, from 0 to 5 `[pairs]`.
    """

    first: list[str]
    second: list[str]
    gold: Reals


Read = Callable[[PublishedContext, str], Pairs]
Kind = Literal["spearman", "pearson"]


def senteval_pairs(context: PublishedContext, path: str, gold_path: str) -> Pairs:
    """One subset of a year in SentEval's layout: a file of sentences and one of scores.

    Pairs without a score are left out, as they were never annotated.

    Raises:
        InputError: the files differ in length or are damaged, or a row is bad and may not be left out.
    """
    sentences, gold = _lines(context, path), _lines(context, gold_path)
    if len(sentences) != len(gold):
        raise InputError(
            f"{context.folder / path} has {len(sentences):,} lines, {gold_path} has {len(gold):,}: fetch both again"
        )
    rows = [[score, *line.split("\t")[:2]] for score, line in zip(gold, sentences, strict=True) if score.strip()]
    return _pairs(context, path, rows)


def tsv_pairs(context: PublishedContext, path: str) -> Pairs:
    """Pairs in one file without header: score, first and second sentence, separated by tabs; no quoting.

    Raises:
        InputError: the file is damaged, or a row is bad and may not be left out.
    """
    rows = [line.split("\t") for line in _lines(context, path)]
    return _pairs(context, path, [row for row in rows if row[0].strip()])


def sts_benchmark_pairs(context: PublishedContext, path: str) -> Pairs:
    """Pairs of STS-B, whose `.csv` is separated by tabs and not quoted: score and sentences in columns 4 to 6 (from 0).

    Raises:
        InputError: the file is damaged, or a row is bad and may not be left out.
    """
    return _pairs(context, path, [line.split("\t")[4:7] for line in _lines(context, path)])


def sick_pairs(context: PublishedContext, path: str) -> Pairs:
    """Pairs of SICK: a header, then id, two sentences and the relatedness, separated by tabs.

    Raises:
        InputError: the header is that of another file (`SICK.txt` has the label in place of the score), the file is
            damaged, or a row is bad and may not be left out.
    """
    header, *lines = _lines(context, path)
    if header.split("\t")[:4] != _SICK_HEADER:
        raise InputError(f"{context.folder / path} does not begin with {' '.join(_SICK_HEADER)}: fetch that file")
    fields = (line.split("\t")[1:4] for line in lines)
    return _pairs(context, path, [[*row[2:], *row[:2]] for row in fields])


def _lines(context: PublishedContext, path: str) -> list[str]:
    # Not `splitlines`: sentences may hold characters such as U+0085 that it takes for the end of a line.
    try:
        return (context.folder / path).read_text("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{context.folder / path} is damaged ({error}): fetch it again") from None
    except OSError:
        raise InputError(f"{context.folder / path} cannot be read: put it there") from None


def _pairs(context: PublishedContext, path: str, rows: Sequence[Sequence[str]]) -> Pairs:
    """Those of `rows`, each score, first and second sentence, that are whole."""
    scores = [_score(row[0]) if len(row) >= 3 else None for row in rows]
    bad = [number for number, score in enumerate(scores) if score is None]
    if bad:
        told = f"{len(bad)} rows are not two sentences and a score from 0 to 5 (row {some_of(bad)}, from 0)"
        context.amiss(f"{path}: {told}")
    good = [(score, row[1], row[2]) for score, row in zip(scores, rows, strict=True) if score is not None]
    return Pairs(
        [_words(first) for _, first, _ in good],
        [_words(second) for _, _, second in good],
        np.array([score for score, _, _ in good], dtype=np.float64),
    )


def _score(text: str) -> float | None:
    try:
        score = float(text)
    except ValueError:
        return None
    return score if 0 <= score <= 5 else None


def _words(sentence: str) -> str:
    # SimCSE's SentEval splits at any white space and joins the words again before it asks the encoder.
    return " ".join(sentence.split())


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
"""Year -> SentEval's name of a subset -> scored pairs; the years hold 3,108, 1,500, 3,750, 3,000 and 1,186."""
STS_B, STS_B_PAIRS = "STSBenchmark/sts-test.csv", 1379
SICK, SICK_PAIRS = "SICK/SICK_test_annotated.txt", 4927
_FOLDER = "sts"
_TIES = "similarities equal to six decimals share the mean of their ranks; a constant column counts as 0"
_SOURCE = "princeton-nlp/datasets-for-simcse, senteval.tar"
_LICENCE = "that of each source, see the STS wiki; STS-B CC BY-SA 4.0"


@dataclass(frozen=True)
class _EitherLayout(Benchmark[PublishedContext]):
    """A year that may lie there in either of two layouts, so that no single file is a must."""

    def check_files(self, data: Path) -> Path:
        """See `Benchmark`; one subset in either layout is enough here, `score` tells of those that lack."""
        folder = super().check_files(data)
        if not any((folder / need.path).exists() for need in self.needs):
            listed = "; ".join(need.told for need in self.needs)
            raise InputError(f"benchmark '{self.name}' lacks files: put into {folder} either layout of: {listed}")
        return folder


def score_year(year: str, context: PublishedContext) -> Scores:
    """Every subset of a year, and all of them pooled."""
    found: dict[str, Pairs] = {}
    for subset, count in SUBSETS[year].items():
        pairs = _subset(context, year, subset)
        context.expect(f"STS {year} {subset}, scored pairs", len(pairs.gold) if pairs else 0, count)
        if pairs and len(pairs.gold):
            found[subset.removeprefix("surprise.")] = pairs
    if not found:
        raise InputError(f"{context.folder} has no pair of STS {year}: fetch {_SOURCE}")
    name, columns = f"sts{year[2:]}", _columns(context, found)
    return Scores({}, correlations=spearman_by_subset(name, columns), scalars=mean_spearman(name, columns))


def score_test(
    name: str, read: Read, path: str, count: int, kinds: Sequence[Kind], context: PublishedContext
) -> Scores:
    """The correlations `kinds` of a test part that is one file, of which `count` pairs are published."""
    pairs = read(context, path)
    context.expect(f"{path}, pairs", len(pairs.gold), count)
    columns = _columns(context, {"test": pairs})["test"]
    return Scores({}, correlations={f"{name}/test/{kind}": Correlation(kind, *columns) for kind in kinds})


def tested_test(read: Read, path: str, context: PublishedContext) -> Tested:
    """The sentences of a test part that is one file."""
    pairs = read(context, path)
    return Tested([*pairs.first, *pairs.second])


def tested_year(year: str, context: PublishedContext) -> Tested:
    """The sentences of all subsets that are there."""
    found = [_subset(context, year, subset) for subset in SUBSETS[year]]
    if not any(found):
        raise InputError(f"{context.folder} has no pair of STS {year}: fetch {_SOURCE}")
    return Tested([text for pairs in found if pairs for text in (*pairs.first, *pairs.second)])


def _subset(context: PublishedContext, year: str, subset: str) -> Pairs | None:
    sentences, scores, tsv = _paths(year, subset)
    if (context.folder / sentences).exists():
        return senteval_pairs(context, sentences, scores)
    return tsv_pairs(context, tsv) if (context.folder / tsv).exists() else None


def _columns(context: PublishedContext, found: Mapping[str, Pairs]) -> dict[str, tuple[Reals, Reals]]:
    """Gold and predicted similarities of each subset."""
    # All at once, for the encoder sorts them by length; the subsets then take theirs from the context.
    context.texts([text for pairs in found.values() for text in (*pairs.first, *pairs.second)])
    return {
        name: (pairs.gold, pair_cosines(context.texts(pairs.first), context.texts(pairs.second)))
        for name, pairs in found.items()
    }


def _paths(year: str, subset: str) -> tuple[str, str, str]:
    """Files of a subset: SentEval's sentences and scores, and the one that stands for both."""
    folder = f"STS{year[2:]}-en-test"
    return (
        f"{folder}/STS.input.{subset}.txt",
        f"{folder}/STS.gs.{subset}.txt",
        f"{year}/{subset.removeprefix('surprise.')}.test.tsv",
    )


def _needs(year: str) -> tuple[Need, ...]:
    def need(path: str, what: str, source: str) -> Need:
        return Need(path, what, "under 1 MB", _LICENCE, source, optional=True)

    found = []
    for subset, count in SUBSETS[year].items():
        sentences, scores, tsv = _paths(year, subset)
        found.append(need(sentences, "sentence pairs", _SOURCE))
        found.append(need(scores, f"scores, {count:,} not empty", _SOURCE))
        found.append(need(tsv, f"instead of both: {count:,} rows", "brmson/dataset-sts"))
    return tuple(found)


def _year(year: str) -> Benchmark[PublishedContext]:
    return _EitherLayout(
        name=f"sts{year[2:]}",
        version=1,
        protocol="SimCSE's SentEval: cosine, no regressor, all subsets pooled; mean and wmean as SentEval",
        citation=f"SemEval {year} STS task (Agirre et al.); SimCSE (arXiv 2104.08821), appendix B",
        folder=_FOLDER,
        needs=_needs(year),
        metrics=metrics(_TIES, "spearman"),
        score=partial(score_year, year),
        tested=partial(tested_year, year),
        text_only=True,
    )


def _test(
    name: str, read: Read, path: str, count: int, kinds: Sequence[Kind], licence: str, citation: str
) -> Benchmark[PublishedContext]:
    unbroken = metrics("none are broken; a constant column counts as 0", "pearson") if "pearson" in kinds else ()
    return Benchmark(
        name=name,
        version=1,
        protocol="SimCSE's SentEval: cosine, no regressor, test part",
        citation=f"{citation}; SimCSE (arXiv 2104.08821)",
        folder=_FOLDER,
        needs=(Need(path, f"{count:,} pairs", "under 1 MB", licence, _SOURCE),),
        metrics=(*metrics(_TIES, "spearman"), *unbroken),
        score=partial(score_test, name, read, path, count, kinds),
        tested=partial(tested_test, read, path),
        text_only=True,
    )


BENCHMARKS = (
    *(_year(year) for year in SUBSETS),
    # The authors of STS-B report Pearson.
    _test("stsb", sts_benchmark_pairs, STS_B, STS_B_PAIRS, ("spearman", "pearson"),
          "CC BY-SA 4.0 and those of the sources", "SemEval 2017 task 1 (Cer et al., arXiv 1708.00055)"),
    _test("sickr", sick_pairs, SICK, SICK_PAIRS, ("spearman",), "CC BY-NC-SA 3.0", "SICK (Marelli et al. 2014)"),
)  # fmt: skip
