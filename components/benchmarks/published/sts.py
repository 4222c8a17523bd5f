"""Semantic textual similarity: cosines of sentence pairs against human scores, as SimCSE reports them.

STS 2012 to 2016 (Agirre et al.), STS-B (Cer et al. 2017) and SICK-R (Marelli et al. 2014) under the protocol of
SimCSE's changed SentEval, which ParaCLIP (section 4) takes over: no regressor, the pairs of all subsets of a year
pooled into one Spearman correlation ("all"). SentEval's own "mean" and "wmean" over subsets stand beside it. Sentences
are split at white space and joined again; the 2013 SMT subset is not part of it (its licence).

ParaCLIP's average is the plain mean of the seven values `sts12/all/spearman` ... `sts16/all/spearman`,
`stsb/test/spearman` and `sickr/test/spearman`; SimCSE rounds each to two decimals of a per cent first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.sts_files import Pairs, senteval_pairs, sick_pairs, sts_benchmark_pairs, tsv_pairs
from components.benchmarks.protocols.text_similarity import mean_spearman, pair_cosines, spearman_by_subset
from components.benchmarks.published import PublishedBenchmark
from components.benchmarks.scores import Correlation, Metric, Scores
from components.core.errors import InputError
from components.core.metrics import Reals

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
_SOURCE = "princeton-nlp/datasets-for-simcse, senteval.tar"
_LICENCE = "that of each source, see the STS wiki; STS-B CC BY-SA 4.0"
_TIES = "similarities equal to six decimals share the mean of their ranks; a constant column counts as 0"


@dataclass(frozen=True)
class _EitherLayout(PublishedBenchmark):
    """A year that may lie there in either of two layouts, so that no single file is a must."""

    def check_files(self, data: Path) -> Path:
        """See `Published`; one subset in either layout is enough here, `score` tells of those that lack."""
        folder = super().check_files(data)
        if not any((folder / need.path).exists() for need in self.needs):
            listed = "; ".join(need.told for need in self.needs)
            raise InputError(f"benchmark '{self.name}' lacks files: put into {folder} either layout of: {listed}")
        return folder


def score_year(year: str, context: PublishedContext) -> Scores:
    """Every subset of a year, and all of them pooled.

    Raises:
        InputError: a subset is missing, has another number of pairs or bad rows, and may not be left out.
    """
    found: dict[str, Pairs] = {}
    for subset, count in SUBSETS[year].items():
        pairs = _subset(context, year, subset)
        context.expect(f"STS {year} {subset}, scored pairs", len(pairs.gold) if pairs else 0, count)
        if pairs and len(pairs.gold):
            found[_short(subset)] = pairs
    if not found:
        raise InputError(f"{context.folder} has no pair of STS {year}: fetch {_SOURCE}")
    name = _name(year)
    columns = _columns(context, found)
    return Scores({}, correlations=spearman_by_subset(name, columns), scalars=mean_spearman(name, columns))


def score_sts_b(context: PublishedContext) -> Scores:
    """The test part of STS-B: Spearman, and Pearson, which its authors report."""
    pairs = sts_benchmark_pairs(context, STS_B)
    context.expect(f"{STS_B}, pairs", len(pairs.gold), STS_B_PAIRS)
    gold, predicted = _columns(context, {"test": pairs})["test"]
    return Scores(
        {},
        correlations={
            "stsb/test/spearman": Correlation("spearman", gold, predicted),
            "stsb/test/pearson": Correlation("pearson", gold, predicted),
        },
    )


def score_sick(context: PublishedContext) -> Scores:
    """The relatedness of SICK's test part."""
    pairs = sick_pairs(context, SICK)
    context.expect(f"{SICK}, pairs", len(pairs.gold), SICK_PAIRS)
    columns = _columns(context, {"test": pairs})["test"]
    return Scores({}, correlations={"sickr/test/spearman": Correlation("spearman", *columns)})


def tested_year(year: str, context: PublishedContext) -> Tested:
    """The sentences of all subsets that are there."""
    found = [_subset(context, year, subset) for subset in SUBSETS[year]]
    if not any(found):
        raise InputError(f"{context.folder} has no pair of STS {year}: fetch {_SOURCE}")
    return _sentences(*(pairs for pairs in found if pairs))


def tested_sts_b(context: PublishedContext) -> Tested:
    """The sentences of the test part."""
    return _sentences(sts_benchmark_pairs(context, STS_B))


def tested_sick(context: PublishedContext) -> Tested:
    """The sentences of the test part."""
    return _sentences(sick_pairs(context, SICK))


def _sentences(*found: Pairs) -> Tested:
    return Tested([text for pairs in found for text in (*pairs.first, *pairs.second)])


def _subset(context: PublishedContext, year: str, subset: str) -> Pairs | None:
    if (context.folder / _input(year, subset)).exists():
        return senteval_pairs(context, _senteval_folder(year), subset)
    if (context.folder / _tsv(year, subset)).exists():
        return tsv_pairs(context, _tsv(year, subset))
    return None


def _columns(context: PublishedContext, found: Mapping[str, Pairs]) -> dict[str, tuple[Reals, Reals]]:
    """Gold and predicted similarities of each subset."""
    # All at once, for the encoder sorts them by length; the subsets then take theirs from the context.
    context.texts([text for pairs in found.values() for text in (*pairs.first, *pairs.second)])
    return {
        name: (pairs.gold, pair_cosines(context.texts(pairs.first), context.texts(pairs.second)))
        for name, pairs in found.items()
    }


def _name(year: str) -> str:
    return f"sts{year[2:]}"


def _short(subset: str) -> str:
    return subset.removeprefix("surprise.")


def _senteval_folder(year: str) -> str:
    return f"STS{year[2:]}-en-test"


def _input(year: str, subset: str) -> str:
    return f"{_senteval_folder(year)}/STS.input.{subset}.txt"


def _tsv(year: str, subset: str) -> str:
    return f"{year}/{_short(subset)}.test.tsv"


def _needs(year: str) -> tuple[Need, ...]:
    def need(path: str, what: str, source: str) -> Need:
        return Need(path, what, "under 1 MB", _LICENCE, source, optional=True)

    found = []
    for subset, count in SUBSETS[year].items():
        found.append(need(_input(year, subset), "sentence pairs", _SOURCE))
        found.append(need(f"{_senteval_folder(year)}/STS.gs.{subset}.txt", f"scores, {count:,} not empty", _SOURCE))
        found.append(need(_tsv(year, subset), f"instead of both: {count:,} rows", "brmson/dataset-sts"))
    return tuple(found)


def _year(year: str) -> PublishedBenchmark:
    return _EitherLayout(
        name=_name(year),
        version=1,
        protocol="SimCSE's SentEval: cosine, no regressor, all subsets pooled; mean and wmean as SentEval",
        citation=f"SemEval {year} STS task (Agirre et al.); SimCSE (arXiv 2104.08821), appendix B",
        folder=_FOLDER,
        needs=_needs(year),
        metrics=(Metric("spearman", higher_is_better=True, ties=_TIES),),
        score=partial(score_year, year),
        tested=partial(tested_year, year),
        text_only=True,
    )


BENCHMARKS = (
    *(_year(year) for year in SUBSETS),
    Benchmark(
        name="stsb",
        version=1,
        protocol="SimCSE's SentEval: cosine, no regressor, test part",
        citation="SemEval 2017 task 1 (Cer et al., arXiv 1708.00055); SimCSE (arXiv 2104.08821)",
        folder=_FOLDER,
        needs=(Need(STS_B, f"{STS_B_PAIRS:,} pairs", "under 1 MB", "CC BY-SA 4.0 and those of the sources", _SOURCE),),
        metrics=(
            Metric("spearman", higher_is_better=True, ties=_TIES),
            Metric("pearson", higher_is_better=True, ties="none are broken; a constant column counts as 0"),
        ),
        score=score_sts_b,
        tested=tested_sts_b,
        text_only=True,
    ),
    Benchmark(
        name="sickr",
        version=1,
        protocol="SimCSE's SentEval: cosine, no regressor, test part",
        citation="SICK (Marelli et al. 2014); SimCSE (arXiv 2104.08821)",
        folder=_FOLDER,
        needs=(Need(SICK, f"{SICK_PAIRS:,} pairs", "under 1 MB", "CC BY-NC-SA 3.0", _SOURCE),),
        metrics=(Metric("spearman", higher_is_better=True, ties=_TIES),),
        score=score_sick,
        tested=tested_sick,
        text_only=True,
    ),
)
