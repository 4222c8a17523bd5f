"""Stage `test_set`: test queries that a language model writes and another question judges, made once and frozen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from components.captions.generating.asking import REASON, SAMPLING, SynthesisCounts, ask
from components.captions.generating.engines import Engine, make_engine
from components.captions.generating.questions import Questions, questions_without_block
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Request
from components.captions.test_queries.kinds import QueryKind, written_files
from components.captions.validation.rules.probes import Probes, find_probes
from components.captions.validation.rules.table import add_columns, constant_rows, row_rules
from components.captions.validation.suites import Suites
from components.core.settings import Settings
from components.core.system.checking import load_checked
from components.core.system.errors import InputError
from components.core.system.project import run_in_project, start
from components.core.tables import folders
from components.core.tables.files import atomic_folder, content_hash
from components.core.tables.formats import write_record
from components.core.tables.records import PAIRS, REJECTED_QUERIES, WRITTEN_QUERIES, key_of
from components.core.tables.written_queries import (
    FILE,
    SUMMARY,
    WrittenQuery,
    WrittenSummary,
    frozen_hash,
    read_summary,
)
from components.core.text import normalised
from components.core.tracking import tracked_run
from components.encoders.adapter.sidecar import read_sidecar

REJECTED = "rejected.parquet"
Caption = tuple[str, str]
"""Image id and caption."""


@dataclass
class Candidate:
    """One answer: the query, or the reason why it is not used."""

    image_id: str
    caption: str
    query: str
    reason: str = ""


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


class QueryWriter:
    """The model, the judge and the rules of a test set; answers are stored, so that a stopped run resumes."""

    def __init__(self, settings: Settings, store: GenerationStore, probes: Probes, context_length: int) -> None:
        options, synthesize = settings.test_set, settings.synthesize
        assert options.llm is not None
        self._settings, self._store, self._context_length = settings, store, context_length
        # Facts are those of training scenes.
        self._probes, self._suites = replace(probes, facts=None), Suites()
        self.model, self.judge = options.llm, options.judge_llm or options.llm
        self._writes = make_engine(synthesize, self.model)
        self._judges = self._writes if self.judge == self.model else make_engine(synthesize, self.judge)
        self.counts = SynthesisCounts()

    def candidates(self, kind: QueryKind, captions: Sequence[Caption], title: str) -> list[Candidate]:
        """All answers for the captions, in their order, each with its reason if it is rejected."""
        options = self._settings.test_set
        samples = options.paraphrases if kind.name == "paraphrase" else 1
        sampling = {"temperature": options.temperature, "top_p": options.top_p, "max_tokens": options.max_tokens}
        questions = questions_without_block(self._settings, kind.task, self._writes, samples=samples, **sampling)
        about = [(image, caption, questions.about(InputRow(image, 0, {"caption": caption}), attempt))
                 for image, caption in captions for attempt in range(samples)]  # fmt: skip
        answers = self._answers(self._writes, [request for *_, request in about], f"{title}: {kind.name}")
        found = [Candidate(image, caption, *_parsed(questions, answers.get(request.key)))
                 for image, caption, request in about]  # fmt: skip
        self._check(kind, found)
        self._judge(kind, [one for one in found if not one.reason], title)
        return found

    def check_failed(self) -> None:
        """Raise `InputError` if more of the questions so far failed than `synthesize.max_failed_share` allows."""
        most = self._settings.synthesize.max_failed_share
        self.counts.check_failed("test_set", most, "synthesize.max_failed_share")

    def written(self, kind: QueryKind, candidates: Iterable[Candidate]) -> list[WrittenQuery]:
        """The accepted ones as rows of the test set."""
        by = (self.model, kind.task, self.judge, kind.judge)
        return [
            WrittenQuery(one.image_id, one.caption, one.query, kind.name, *by) for one in candidates if not one.reason
        ]

    def _answers(self, engine: Engine, requests: Sequence[Request], title: str) -> dict[str, str]:
        self.counts += ask(self._store, engine, requests, title, len(requests))
        return self._store.answers([request.key for request in requests])

    def _check(self, kind: QueryKind, candidates: Sequence[Candidate]) -> None:
        """Set the reasons of the candidates that break a rule of `validate`."""
        answer = kind.rules.answers[0]
        frame = pd.DataFrame(
            {
                "row": range(len(candidates)),
                answer.source: [one.caption for one in candidates],
                answer.column: [None if one.reason else one.query for one in candidates],
                f"rejected_{answer.column}": [one.reason or None for one in candidates],
            },
            dtype=object,
        ).astype({"row": np.int64})
        limits = self._settings.validation.limits(key_of(kind.rules.table)).model_copy(update=dict(kind.limits))
        probes = self._probes.used_for([one.caption for one in candidates])
        pairs = [(one.query, one.caption) for one in candidates]
        constant = constant_rows(pairs, limits.max_same_share) if answer.is_whole else []
        frame = add_columns(frame, kind.rules, limits, probes, np.array(_repeated(candidates), np.int64), constant)
        rules = row_rules(kind.rules, limits, self._context_length)
        for row, reasons in self._suites.check_rows(kind.name, frame, rules).failures.items():
            candidates[row].reason = ";".join(reasons)

    def _judge(self, kind: QueryKind, candidates: Sequence[Candidate], title: str) -> None:
        """Set the reason of the candidates that the judge does not accept."""
        questions = questions_without_block(self._settings, kind.judge, self._judges, **SAMPLING)
        requests = [questions.about(InputRow(one.image_id, 0, {"caption": one.caption, kind.judged: one.query}), 0)
                    for one in candidates]  # fmt: skip
        verdicts = self._answers(self._judges, requests, f"{title}: judge of {kind.name}")
        for one, request in zip(candidates, requests, strict=True):
            if request.key not in verdicts or questions.rejects(verdicts[request.key]):
                one.reason = REASON


def _parsed(questions: Questions, answer: str | None) -> tuple[str, str]:
    """The text of an answer, and the reason why there is none."""
    if answer is None:
        return "", "failed"
    text = questions.task.parse(answer)
    return (text, "") if text else ("", "unparsable")


def _repeated(candidates: Sequence[Candidate]) -> list[int]:
    """The rows of queries that an earlier candidate for the same caption has."""
    seen: set[tuple[str, str, str]] = set()
    rows = []
    for row, one in enumerate(candidates):
        key = (one.image_id, one.caption, normalised(one.query))
        if not one.reason and key in seen:
            rows.append(row)
        seen.add(key)
    return rows


def main() -> None:
    """Have a language model write test queries for the captions of the test and validation splits.

    Example: python -m components.captions.test_queries.test_set
    """
    run_in_project(lambda: run_tracked(load_checked(entries=())))


if __name__ == "__main__":
    start(main)
