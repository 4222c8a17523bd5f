"""Batch APIs, which answer within a day at half the price: writes a task's open questions, and reads the results.

The format is OpenAI's (https://platform.openai.com/docs/guides/batch); Azure, Groq, Together and `vllm run-batch` take
it too. A request's `custom_id` is its question's key in the store, so results may have any order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from more_itertools import batched, constrained_batches, side_effect

from components.captions.generating.asking import MeaningJudge, outcomes, revisions, usable_pairs
from components.captions.generating.engines import engine_of
from components.captions.generating.engines.server import ServerEngine
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.generating.wire import FILTERED, FilteredError, MalformedError, answer_in, sentence_in
from components.captions.prompting.request import CUT, ModelAnswer, Reply, Request
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.system.progress import bar, track
from components.core.tables.files import atomic_file
from components.core.tables.work_shard import Shard

MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000
"""Of a file of requests, as OpenAI allows."""
_EXPIRED = "the batch expired"
_KINDS = {_EXPIRED: "expired", CUT: "cut at max_tokens", FILTERED: "filtered"}
"""Beginning of a failure's reason -> its name in counts; others have failed."""
_BLOCK = 2_000
"""Results that are stored together."""
Source = tuple[ServerEngine, Iterator[Request]]


def sources(store: GenerationStore, settings: Settings, name: str, shard: Shard | None = None) -> Iterator[Source]:
    """The questions of a task to engine `server`: about its rows, then those that follow from stored answers.

    Read and answer each before the next one. There are none if another engine answers the task.
    """
    engine = engine_of(settings.synthesize, name)
    if not isinstance(engine, ServerEngine):
        return
    questions = questions_of(settings, name, engine)
    yield engine, questions.read(shard)
    if questions.task.judges is not None:
        yield engine, revisions(store, questions, shard)
    if (llm := questions.options.judge_llm) is not None:
        judge = MeaningJudge(settings, llm)
        if isinstance(judge.engine, ServerEngine):
            yield judge.engine, map(judge.there, usable_pairs(store, questions, shard))
            yield judge.engine, judge.back(store, usable_pairs(store, questions, shard))


def write_requests(
    path: Path, store: GenerationStore, settings: Settings, name: str, shard: Shard | None = None
) -> str:
    """Write a task's questions without an answer to `path`, or to `<path>-1`, `-2`, ...; returns their counts.

    Each file has one model and one kind of question. A question whose answer was cut gets more tokens, as from engine
    `server`.
    """
    _check(path, settings, name)
    counts, parts, seen = Counter[str](), list[Path](), set[str]()
    with bar(name, None, "question") as progress:
        for engine, requests in sources(store, settings, name, shard):
            read = side_effect(lambda _: progress.update(), requests)
            lines = _lines(store, engine, read, seen, counts)
            for block in constrained_batches(lines, MOST_BYTES, MOST_REQUESTS, strict=False):
                parts.append(path.with_stem(f"{path.stem}-{len(parts) + 1}"))
                with atomic_file(parts[-1]) as temporary:
                    temporary.write_bytes(b"".join(block))
    said = f"{name}: {counts['open']:,} questions without an answer, {counts['answered']:,} with one"
    if counts["unreadable"]:
        said += f"; {counts['unreadable']:,} left out, because their picture cannot be read"
    if not parts:
        return f"{said}: nothing to write, run `dvc repro synthesize@{name}`"
    if len(parts) == 1:
        parts = [parts[0].replace(path)]
    files = ", ".join(part.name for part in parts)
    said += f"\nwrote {files}: run each as a batch, then `cliptune answers import --batch` its output and error files"
    if find_task(name).judges is not None or settings.synthesize.tasks[name].judge_llm is not None:
        said += "; then this command again, for questions that follow from a judge's answers"
    return said


def _check(path: Path, settings: Settings, name: str) -> None:
    """Raise `InputError` if a task has no questions for a batch, or files are in the way."""
    engine = engine_of(settings.synthesize, name)
    options, before = questions_of(settings, name, engine).options, settings.synthesize.before(name)
    if not isinstance(engine, ServerEngine):
        raise InputError(
            f"task '{name}' is answered by '{settings.synthesize.model_of(options)}', whose engine is not `server`: "
            f"set synthesize.tasks.{name}.llm to a model of engine `server`"
        )
    if before is not None and not options.input.is_file():
        raise InputError(
            f"task '{name}' is about the answers of '{before}', and {options.input} is missing: import the results "
            f"of '{before}' and run `dvc repro synthesize@{before}` first"
        )
    if taken := [path] * path.exists() + sorted(path.parent.glob(f"{escape(path.stem)}-[0-9]*{escape(path.suffix)}")):
        raise InputError(f"{taken[0]} exists: name a new file, or remove it")


def _lines(
    store: GenerationStore, engine: ServerEngine, requests: Iterator[Request], seen: set[str], counts: Counter[str]
) -> Iterator[bytes]:
    """The request of each question without an answer, once."""
    for request, answer, failure in outcomes(store, requests):
        if request.key in seen:
            continue
        seen.add(request.key)
        counts["answered" if answer is not None else "open"] += 1
        if answer is not None:
            continue
        try:
            url, body = engine.body(request.longer if failure is not None and failure.startswith(CUT) else request)
        except ValueError as error:
            counts["unreadable"] += 1
            store.add([Reply(request, None, f"unreadable: {error}")])
            continue
        line = {"custom_id": request.key, "method": "POST", "url": f"/v1{url}", "body": body}
        yield json.dumps(line).encode() + b"\n"


def import_results(store: GenerationStore, settings: Settings, paths: Sequence[Path]) -> str:
    """Store the answers and the failures of a batch's output and error files; returns their counts.

    The next run or batch repeats a failed question. Importing the same files again changes nothing.
    """
    results, faults = dict[str, ModelAnswer | str](), Counter[str]()
    for path in paths:
        _read(path, results, faults)
    if not results:
        raise InputError(f"{paths[0]}: no line is a batch's result: name a batch's output or error file")
    total, kinds = len(results), ("answers", "in the store already", "failed", *_KINDS.values())
    counts = Counter(dict.fromkeys(kinds, 0))
    with bar("import", total, "result") as progress:
        for name, task in settings.synthesize.tasks.items():
            # A table that does not exist yet has no questions.
            left = results and task.input.exists()
            for _, requests in sources(store, settings, name) if left else ():
                for block in batched((one for one in requests if one.key in results), _BLOCK):
                    counts.update(_store(store, block, results))
                    progress.update(total - len(results) - progress.n)
    if len(results) == total:
        raise InputError(
            f"{paths[0]}: none of its {total:,} results answers a question of this project: import them with the "
            "captions, the model and the settings that wrote the requests, or with --profile"
        )
    counts += Counter({**faults, "not of this project's questions": len(results)})
    repeat = "; the next run or --batch-out repeats what has no answer (reasons: `cliptune answers stats`)"
    failed = any(counts[kind] for kind in ("failed", *_KINDS.values()))
    return ", ".join(f"{number:,} {kind}" for kind, number in counts.items() if number) + (repeat if failed else "")


def _store(store: GenerationStore, requests: Sequence[Request], results: dict[str, ModelAnswer | str]) -> list[str]:
    """Store the results of questions, take them out of `results`, and return the kind of each."""
    replies, kinds = list[Reply](), list[str]()
    for request, answer, failure in outcomes(store, requests):
        # Two rows may ask the same question.
        if (result := results.pop(request.key, None)) is None:
            continue
        if answer is not None:
            kinds.append("in the store already")
            continue
        if isinstance(result, ModelAnswer):
            # A question whose answer was cut once was sent with more tokens.
            tokens = max(request.sampling.max_tokens, result.tokens[1] if result.cut else 0)
            reply = Reply.of(request, result, tokens)
        else:
            reply = Reply(request, None, result)
        reason = reply.failure
        if reason is None:
            kinds.append("answers")
        else:
            kinds.append(next((kind for start, kind in _KINDS.items() if reason.startswith(start)), "failed"))
        if reason is None or reason != failure:
            replies.append(reply)
    store.add(replies)
    return kinds


def _read(path: Path, results: dict[str, ModelAnswer | str], faults: Counter[str]) -> None:
    """Add a file's results by key of the question, an answer or why there is none; of one key, an answer is kept."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in track(filter(str.strip, lines), path.name, None, "line"):
            try:
                row = json.loads(line)
                key = row["custom_id"]
            except (ValueError, RecursionError, TypeError, KeyError):
                key = None
            if not isinstance(key, str):
                faults["lines without a result"] += 1
                continue
            if "method" in row and row.keys().isdisjoint(("response", "error")):
                raise InputError(f"{path} holds requests: run it as a batch, and import the batch's output file")
            faults["repeated"] += key in results
            if not isinstance(results.get(key), ModelAnswer):
                results[key] = _result(row)


def _result(row: dict[str, Any]) -> ModelAnswer | str:
    """The answer of a result, or the reason why there is none, as engine `server` gives it."""
    response, error = row.get("response"), row.get("error")
    if not isinstance(response, dict):
        if isinstance(error, dict) and error.get("code") == "batch_expired":
            return _EXPIRED
        return f"no response{sentence_in(error, '')}"
    code, body = response.get("status_code", 200), response.get("body")
    if code != 200:
        return f"HTTP {str(code)[:3]}{sentence_in(body or error, '')}"
    try:
        return answer_in(body)
    except (MalformedError, FilteredError) as fault:
        return str(fault)
