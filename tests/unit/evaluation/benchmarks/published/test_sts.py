"""The seven STS benchmarks on files in their published layouts, with answers computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from components.core.system.errors import InputError
from components.data.test_sets.readers.sts import SUBSETS
from components.evaluation.benchmarks.published import published_benchmarks
from components.evaluation.scoring.correlations import correlation_value
from components.evaluation.scoring.protocols.retrieval import pair_cosines
from tests.support.published import ScoredBenchmark, refused, scored
from tests.unit.data.test_sets.writing import write_files

TABLE = {"a man": (1, 0, 0), "one man": (1, 0, 0), "a dog": (0, 1, 0), "nothing": (0, 0, 0)}
TABLE |= {"a boy": (0.8, 0.6, 0), "a girl": (0.6, 0.8, 0)}
OTHERS = (("one  man", "5.0"), ("a boy", "4"), ("a dog", ""), (" a girl ", "2.5"), ("a dog", "3"))
PAIRS = [("a man", other, gold) for other, gold in OTHERS]
"""Cosines 1, 0.8, -, 0.6, 0: ranks 4 3 2 1 against gold ranks 4 3 1 2, so that Spearman is 1 - 6 * 2 / 60 = 0.8."""
REVERSED = [("a man", "one man", "0"), ("a man", "a dog", "1.5")]
"""Spearman -1."""
POOLED = 3 / np.sqrt(16.5 * 17.5)
"""Both together: cosine ranks 5.5 4 3 1.5 5.5 1.5 against gold ranks 6 5 3 4 1 2. Deviations from 3.5 have the
products 5, 0.75, 0.25, -1, -5, 3, whose sum is 3, and the squares' sums 16.5 and 17.5."""


def _senteval(folder: Path, year: str, subsets: Mapping[str, list[tuple[str, str, str]]]) -> None:
    for subset, pairs in subsets.items():
        texts, scores = "".join(f"{one}\t{two}\n" for one, two, _ in pairs), "".join(f"{gold}\n" for *_, gold in pairs)
        files = {f"STS.input.{subset}.txt": texts, f"STS.gs.{subset}.txt": scores}
        write_files(folder / f"STS{year[2:]}-en-test", files)


def _tsv(folder: Path, year: str, subsets: Mapping[str, list[tuple[str, str, str]]]) -> None:
    for subset, pairs in subsets.items():
        rows = "".join(f"{gold}\t{one}\t{two}\n" for one, two, gold in pairs)
        write_files(folder / year, {f"{subset.removeprefix('surprise.')}.test.tsv": rows})


def _values(found: ScoredBenchmark) -> dict[str, float]:
    return {name: correlation_value(columns) for name, columns in found.correlations.items()} | found.scalars


@pytest.mark.parametrize("write", [_senteval, _tsv])
def test_a_year_by_hand_in_both_layouts(tmp_path: Path, write: Callable[..., None]) -> None:
    separators = [("a\x85man", "a\u2028dog", "1"), ("a man", "a boy", "2")]
    unscored = ("unscored one", "unscored two", "")
    write(tmp_path, "2012", {"MSRpar": [*PAIRS, unscored], "surprise.OnWN": REVERSED})
    found = scored("sts12", tmp_path, TABLE)
    wanted = {"all": POOLED, "MSRpar": 0.8, "OnWN": -1.0, "mean": -0.1, "wmean": (4 * 0.8 - 2) / 6}
    assert _values(found) == pytest.approx({f"{name}/spearman": value for name, value in wanted.items()})
    assert found.notes == [
        "STS 2012 MSRpar, scored pairs: 4 found, 750 published",
        "STS 2012 MSRvid, scored pairs: 0 found, 750 published",
        "STS 2012 SMTeuroparl, scored pairs: 0 found, 459 published",
        "STS 2012 surprise.OnWN, scored pairs: 2 found, 750 published",
        "STS 2012 surprise.SMTnews, scored pairs: 0 found, 399 published",
    ]
    assert {*found.asked} == {"a boy", "a dog", "a girl", "a man", "one man"}, "single spaces, and no unscored pair"
    write(tmp_path, "2014", {"tweet-news": separators})
    columns = scored("sts14", tmp_path, TABLE).correlations["tweet-news/spearman"]
    assert len(columns.gold) == 2, "unusual line separators are part of a sentence"


@pytest.mark.parametrize("year", SUBSETS)
def test_whole_years_are_complete_and_every_metric_is_declared(tmp_path: Path, year: str) -> None:
    generator = np.random.default_rng(0)
    rows = {
        subset: [("a man", f"text {generator.integers(9)}", f"{generator.integers(26) / 5}") for _ in range(count)]
        for subset, count in SUBSETS[year].items()
    }
    _senteval(tmp_path, year, rows)
    found = scored(f"sts{year[2:]}", tmp_path, TABLE, allow_partial=False)
    assert found.notes == []
    assert (
        len(found.correlations["all/spearman"].gold)
        == {"2012": 3108, "2013": 1500, "2014": 3750, "2015": 3000, "2016": 1186}[year]
    )
    assert all(metric.higher_is_better for metric in found.declared.metrics)


def test_zero_vectors_and_noise_of_single_precision() -> None:
    first, second = np.array([[1, 0], [0, 0], [3, 4]], np.float32), np.array([[1, 0], [1, 0], [-6, -8]], np.float32)
    assert pair_cosines(first, second).tolist() == [1, 0, -1]
    drawn = np.random.default_rng(0).normal(size=(50, 384))
    first = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    assert set(pair_cosines(first, first)) == set(pair_cosines(first, np.nextafter(first, np.float32(1)))) == {1.0}


def test_bad_rows_and_missing_files_are_named_and_rows_left_out_only_where_allowed(tmp_path: Path) -> None:
    bad = [("a man", "a dog", "six"), ("a man", "a boy", "5.5"), ("no tab", "", "3")]
    _senteval(tmp_path, "2013", {"FNWN": [*PAIRS, *bad]})
    inputs, scores = (tmp_path / "STS13-en-test" / f"STS.{kind}.FNWN.txt" for kind in ("input", "gs"))
    inputs.write_text(inputs.read_text().replace("no tab\t", "no tab"))
    refused("sts13", tmp_path, r"FNWN.txt: 3 rows are not .* \(row 4, 5, 6, from 0\).*--allow-partial")
    assert len(scored("sts13", tmp_path, TABLE).correlations["all/spearman"].gold) == 4
    for content, message in (
        (b"1\n", r"STS.input.FNWN.txt has 8 lines, STS13-en-test/STS.gs.FNWN.txt has 1"),
        (b"\xff\xfe1", r"STS.gs.FNWN.txt is damaged"),
        (None, r"STS.gs.FNWN.txt cannot be read"),
    ):
        scores.unlink() if content is None else scores.write_bytes(content)
        refused("sts13", tmp_path, message, allow_partial=True)
    with pytest.raises(InputError, match=r"'sts12' lacks files: put into .*sts either layout of: .*MSRpar.*licence: "):
        published_benchmarks()["sts12"].check_files(tmp_path)
    _tsv(tmp_path / "sts", "2012", {"MSRpar": PAIRS})
    assert published_benchmarks()["sts12"].check_files(tmp_path) == tmp_path / "sts"
    refused("sts13", tmp_path / "sts", r"has no pair of STS 2013", allow_partial=True)


def test_sts_b_and_sick_by_hand_and_other_formats(tmp_path: Path) -> None:
    """Genre, file, year, number, score and sentences; some rows also name the sentences' licence."""
    start = "main-captions\tMSRvid\t2012test"
    rows = [
        f'{start}\t0000\t5.000\t"a man\tone man',
        f"{start}\t0001\t4\ta man\ta boy\tlicence",
        f'{start}\t0002\t3\ta man\ta "girl"',
        f"{start}\t0003\t1\ta man\ta dog\tlicence",
    ]
    write_files(tmp_path, {"STSBenchmark/sts-test.csv": "\n".join(rows) + "\n"})
    found = scored("stsb", tmp_path, TABLE | {'"a man': (1, 0, 0), 'a "girl"': (0.6, 0.8, 0)})
    pearson = np.corrcoef([5, 4, 3, 1], [1, 0.8, 0.6, 0])[0, 1]
    assert _values(found) == pytest.approx({"test/spearman": 1.0, "test/pearson": pearson})
    assert found.notes == ["STSBenchmark/sts-test.csv, pairs: 4 found, 1,379 published"]
    write_files(tmp_path, {"STSBenchmark/sts-test.csv": "genre,file,year,0,5.0,a man,one man\n"})
    refused("stsb", tmp_path, r"sts-test.csv: 1 rows are not two sentences and a score")
    path, header = (
        "SICK/SICK_test_annotated.txt",
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n",
    )
    rows = [f"{number}\t{one}\t{two}\t{gold}\tNEUTRAL\n" for number, (one, two, gold) in enumerate(PAIRS) if gold]
    write_files(tmp_path, {path: header + "".join(rows)})
    found = scored("sickr", tmp_path, TABLE)
    assert _values(found) == pytest.approx({"test/spearman": 0.8})
    assert found.notes == ["SICK/SICK_test_annotated.txt, pairs: 4 found, 4,927 published"]
    other = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n"
    write_files(tmp_path, {path: other + "".join(rows)})
    refused(
        "sickr", tmp_path, r"does not begin with pair_ID sentence_A sentence_B relatedness_score", allow_partial=True
    )
