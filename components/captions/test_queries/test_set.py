"""Stage `test_set`: test queries that a language model writes and another question judges, made once and frozen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from components.captions.generating.store import GenerationStore
from components.captions.test_queries.kinds import QueryKind, written_files
from components.captions.test_queries.writing import Candidate, Caption, QueryWriter
from components.captions.validation.rules.probes import find_probes
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.project import run_in_project, start
from components.core.tables import folders
from components.core.tables.files import atomic_folder, content_hash
from components.core.tables.record_files import write_record
from components.core.tables.records import PAIRS, REJECTED_QUERIES, WRITTEN_QUERIES
from components.core.tables.written_queries import (
    FILE,
    SUMMARY,
    WrittenQuery,
    WrittenSummary,
    frozen_hash,
    read_summary,
)
from components.core.tracking import tracked_run
from components.encoders.adapter.sidecar import read_sidecar

REJECTED = "rejected.parquet"
_Answers = Mapping[str, Sequence[Candidate]]


def run(settings: Settings, folder: Path = folders.TEST_SET, pairs: Path = folders.PAIRS) -> WrittenSummary:
    """Write the test set, unless it exists; returns its summary.

    The tables of the test split are in `folder`, those of the validation split in its folder `validation`. An existing
    test set stays unchanged, whatever the settings are, so that encoders are compared on the same queries.
    """
    captions = _captions(pairs / "test.parquet")
    split = content_hash(*(part for caption in captions for part in caption))
    known = read_summary(folder)
    if known is not None and known.captions_sha256 == split:
        print(f"test_set: keeps the {known}; to write another, delete {folder}")
        _require_kinds(known.accepted, written_files(folders.EVALUATION), settings)
        return known
    if settings.test_set.llm is None:
        with atomic_folder(folder) as place:
            write_record(place / SUMMARY, WrittenSummary())
        return WrittenSummary()
    if known is not None:
        raise InputError(
            f"{folder} was written for another test split, and scores on two test sets cannot be compared: delete it "
            "to have one written for this split, or restore prepare.counts and the pictures"
        )
    return _write(settings, folder, split, captions, _captions(pairs / "val.parquet"))


def run_tracked(settings: Settings) -> None:
    """`run` as an MLflow run, with the counts as metrics."""
    params = settings.test_set.model_dump(mode="json")
    with tracked_run(
        "test_set", settings.test_set.llm or "none", settings, params, {"pairs": folders.PAIRS}
    ) as tracked:
        summary = run(settings)
        counts = {f"{kind}_accepted": count for kind, count in summary.accepted.items()}
        tracked.log_metrics(counts | {f"{kind}_answers": count for kind, count in summary.answers.items()})
        tracked.log_output(folders.TEST_SET)


def _captions(path: Path) -> list[Caption]:
    """Image ids and captions of a split, sorted."""
    table = PAIRS.read(path, ["image_id", "caption"])
    return sorted(set(zip(table["image_id"].to_pylist(), table["caption"].to_pylist(), strict=True)))


def _chosen(captions: Sequence[Caption], count: int, seed: int) -> list[Caption]:
    """One caption of each of `count` images."""
    draw = random.Random(f"test-set-{seed}")
    by_image: dict[str, list[str]] = {}
    for image, caption in captions:
        by_image.setdefault(image, []).append(caption)
    images = sorted(draw.sample(sorted(by_image), min(count, len(by_image))))
    return [(image, draw.choice(by_image[image])) for image in images]


def _write(
    settings: Settings, folder: Path, split: str, test: Sequence[Caption], validation: Sequence[Caption]
) -> WrittenSummary:
    options, seed = settings.test_set, settings.dataset.seed
    probes = find_probes(settings, folders.EVALUATION)
    context_length = read_sidecar(folders.BASE).context_length
    files = written_files(folders.EVALUATION)
    with closing(GenerationStore(settings.synthesize.store)) as store, atomic_folder(folder) as place:
        writer = QueryWriter(settings, store, probes, context_length)
        chosen = _chosen(test, options.max_captions, seed)
        answers = {kind.name: writer.candidates(kind, chosen, "test") for kind in files}
        # Kinds have too few questions for a share of each.
        writer.check_failed()
        _require_accepted(answers["paraphrase"], options.min_accepted_share)
        accepted = {kind: sum(not one.reason for one in found) for kind, found in answers.items()}
        _require_kinds(accepted, files, settings)
        _write_tables(place, writer, answers, files)
        chosen = _chosen(validation, options.max_validation_captions, seed)
        _write_tables(
            place / folders.VALIDATION,
            writer,
            {kind.name: writer.candidates(kind, chosen, "validation") for kind in files},
            files,
        )
        writer.check_failed()
        summary = WrittenSummary(
            captions_sha256=split,
            queries_sha256=frozen_hash(place),
            model=writer.model,
            judge=writer.judge,
            accepted=accepted,
            answers={kind: len(found) for kind, found in answers.items()},
            reasons={kind: _reasons(found) for kind, found in answers.items()},
        )
        write_record(place / SUMMARY, summary)
    print(f"test_set: {summary}")
    return summary


def _write_tables(folder: Path, writer: QueryWriter, answers: _Answers, files: Mapping[QueryKind, str]) -> None:
    """The queries, the rejected answers, and a benchmark table for each kind that has rows."""
    queries: list[WrittenQuery] = [row for kind in files for row in writer.written(kind, answers[kind.name])]
    columns = zip(*queries, strict=True) if queries else [()] * len(WrittenQuery._fields)
    WRITTEN_QUERIES.write(folder / FILE, dict(zip(WrittenQuery._fields, map(list, columns), strict=True)))
    rejected = [(kind, one) for kind, found in answers.items() for one in found if one.reason]
    REJECTED_QUERIES.write(
        folder / REJECTED,
        {
            "image_id": [one.image_id for _, one in rejected],
            "caption": [one.caption for _, one in rejected],
            "kind": [kind for kind, _ in rejected],
            "reason": [one.reason for _, one in rejected],
            "query": [one.query or None for _, one in rejected],
        },
    )
    for kind, file in files.items():
        rows = kind.benchmark_rows(queries)
        if rows.num_rows:
            kind.table.write(folder / file, rows)


def _reasons(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Reason -> number of rejected answers, the most frequent first."""
    found = Counter(reason for one in candidates for reason in one.reason.split(";") if reason)
    return dict(found.most_common())


def _require_accepted(paraphrases: Sequence[Candidate], least: float) -> None:
    accepted = sum(not one.reason for one in paraphrases)
    if not accepted or accepted < least * len(paraphrases):
        reasons = ", ".join(f"{reason} {count}" for reason, count in list(_reasons(paraphrases).items())[:3])
        raise InputError(
            f"test_set: {accepted} of {len(paraphrases)} paraphrases were accepted ({reasons}): choose another "
            f"test_set.llm, or lower test_set.min_accepted_share ({least:g})"
        )


def _require_kinds(accepted: Mapping[str, int], files: Mapping[QueryKind, str], settings: Settings) -> None:
    """Raise InputError if a benchmark would have no query, which is known here before anything trains."""
    for kind, file in files.items():
        benchmark = file.removesuffix(".parquet")
        if benchmark in settings.evaluate.benchmarks and not accepted.get(kind.name):
            raise InputError(
                f"test_set: no {kind.name} was accepted: remove '{benchmark}' from evaluate.benchmarks, add test "
                "pictures, or choose another test_set.llm"
            )


def main() -> None:
    """Have a language model write test queries for the captions of the test and validation splits.

    Example: python -m components.captions.test_queries.test_set
    """
    run_in_project(lambda: run_tracked(load_checked(entries=())))


if __name__ == "__main__":
    start(main)
