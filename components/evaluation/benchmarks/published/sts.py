"""Semantic textual similarity: cosines of sentence pairs against human scores, as SimCSE reports them.

STS 2012 to 2016 (Agirre et al.), STS-B (Cer et al. 2017) and SICK-R (Marelli et al. 2014) under the protocol of
SimCSE's changed SentEval, which ParaCLIP (section 4) adopts: no regressor, the pairs of all subsets of a year pooled
into one Spearman correlation ("all"). SentEval's own "mean" and "wmean" over subsets are also reported.

ParaCLIP's average is the plain mean of the seven values `sts12/all/spearman` ... `sts16/all/spearman`,
`stsb/test/spearman` and `sickr/test/spearman`; SimCSE first rounds each to two decimals of a per cent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from components.core.compute.metrics import Reals
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import TestSetFiles
from components.data.test_sets.readers import sts as reader
from components.evaluation.scoring.benchmark import Benchmark, Correlation, Scores, metrics
from components.evaluation.scoring.protocols.retrieval import mean_spearman, pair_cosines, spearman_by_subset
from components.evaluation.scoring.published_context import PublishedContext

Kind = Literal["spearman", "pearson"]
_TIES = "similarities equal to six decimals share the mean of their ranks; a constant column counts as 0"


@dataclass(frozen=True)
class _EitherLayout(Benchmark[PublishedContext]):
    """A year in either of two layouts, so that no single file is required."""

    def check_files(self, data: Path) -> Path:
        """See `Benchmark`; one subset in either layout is enough, `score` reports missing subsets."""
        folder = super().check_files(data)
        if not any((folder / need.path).exists() for need in self.needs):
            listed = "; ".join(need.description for need in self.needs)
            raise InputError(f"benchmark '{self.name}' lacks files: put into {folder} either layout of: {listed}")
        return folder


def score_year(year: str, context: PublishedContext) -> Scores:
    """Every subset of a year, and all of them pooled."""
    subsets: dict[str, reader.SentencePairs] = {}
    for subset, count in reader.SUBSETS[year].items():
        pairs = reader.read_subset(context, year, subset)
        context.expect(f"STS {year} {subset}, scored pairs", len(pairs.gold) if pairs else 0, count)
        if pairs and len(pairs.gold):
            subsets[subset.removeprefix("surprise.")] = pairs
    if not subsets:
        raise InputError(f"{context.folder} has no pair of STS {year}: fetch {reader.SOURCE}")
    name, columns = f"sts{year[2:]}", _columns(context, subsets)
    return Scores({}, correlations=spearman_by_subset(name, columns), scalars=mean_spearman(name, columns))


def _columns(context: PublishedContext, subsets: Mapping[str, reader.SentencePairs]) -> dict[str, tuple[Reals, Reals]]:
    """Gold and predicted similarities of each subset."""
    # All texts at once, because the encoder sorts them by length; the context then has the features of each subset.
    context.texts([text for pairs in subsets.values() for text in (*pairs.first, *pairs.second)])
    return {
        name: (pairs.gold, pair_cosines(context.texts(pairs.first), context.texts(pairs.second)))
        for name, pairs in subsets.items()
    }


def _test(
    name: str,
    read: Callable[[TestSetFiles], reader.SentencePairs],
    file: RequiredFile,
    count: int,
    kinds: Sequence[Kind],
    citation: str,
) -> Benchmark[PublishedContext]:
    """The correlations `kinds` of a test part in one file, of which `count` pairs are published."""

    def score(context: PublishedContext) -> Scores:
        pairs = read(context)
        context.expect(f"{file.path}, pairs", len(pairs.gold), count)
        columns = _columns(context, {"test": pairs})["test"]
        return Scores({}, correlations={f"{name}/test/{kind}": Correlation(kind, *columns) for kind in kinds})

    unbroken = metrics("none are broken; a constant column counts as 0", "pearson") if "pearson" in kinds else ()
    return Benchmark(
        name=name,
        version=1,
        protocol="SimCSE's SentEval: cosine, no regressor, test part",
        citation=f"{citation}; SimCSE (arXiv 2104.08821)",
        folder=reader.FOLDER,
        needs=(file,),
        metrics=(*metrics(_TIES, "spearman"), *unbroken),
        score=score,
        text_only=True,
    )


BENCHMARKS = (
    *(
        _EitherLayout(
            name=f"sts{year[2:]}",
            version=1,
            protocol="SimCSE's SentEval: cosine, no regressor, all subsets pooled; mean and wmean as SentEval",
            citation=f"SemEval {year} STS task (Agirre et al.); SimCSE (arXiv 2104.08821), appendix B",
            folder=reader.FOLDER,
            needs=reader.year_files(year),
            metrics=metrics(_TIES, "spearman"),
            score=partial(score_year, year),
            text_only=True,
        )
        for year in reader.SUBSETS
    ),
    # The authors of STS-B report Pearson.
    _test(
        "stsb", reader.sts_benchmark_pairs, reader.STS_B_FILE, 1379, ("spearman", "pearson"),
        "SemEval 2017 task 1 (Cer et al., arXiv 1708.00055)",
    ),
    _test("sickr", reader.sick_pairs, reader.SICK_FILE, 4927, ("spearman",), "SICK (Marelli et al. 2014)"),
)  # fmt: skip
