"""A task's questions go out as OpenAI's batch requests, and results in any order and state come back into the store."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from components.captions import synthesize
from components.captions.generating import batches
from components.captions.generating.batches import import_results, write_requests
from components.captions.generating.store import GenerationStore
from components.core.settings import Settings
from components.core.system.errors import InputError
from tests.support.scripted_llm import Answer, Body, Scripted, said, scripted
from tests.support.server_project import ServerProject, write_captions
from tests.support.typed import cliptune

Row = dict[str, Any]
KEY = "sk-planted-0123456789"
OUT = Path("requests.jsonl")


def _answer(body: Body) -> Answer:
    """What the model says: a judge accepts, but for candidates about number 1."""
    asked = body["messages"][-1]["content"]
    if '"Yes" or "No"' in asked:
        return said("No" if "number 1 " in asked else "Yes")
    return said(f"Another text about {re.findall('number [0-9]', asked)[-1]} here")


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted(lambda body, _number: _answer(body)) as running:
        yield running


@pytest.fixture
def settings(
    server: Scripted, tmp_path: Path, raw_params: Row, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Settings]:
    """Settings of a project with eight captions, two of them equal, after changes of the block `synthesize`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ServerProject.make(tmp_path, raw_params, 8, server.url, prices=[1, 2])
    write_captions(tmp_path, [f"a small dog number {number % 7} left of a large cat" for number in range(8)])

    def make(tasks: Row | None = None, **llm: Any) -> Settings:
        raw_params["synthesize"]["tasks"] = tasks or raw_params["synthesize"]["tasks"]
        raw_params["synthesize"]["llms"]["fake"] |= llm
        ServerProject(tmp_path).folder.joinpath("params.yaml").write_text(json.dumps(raw_params))
        return Settings.model_validate(raw_params)

    return make


@pytest.fixture
def store(settings: Callable[..., Settings]) -> Iterator[GenerationStore]:
    with closing(GenerationStore(settings().synthesize.store)) as opened:
        yield opened


def _read(*paths: Path) -> list[Row]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def _write(name: str, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    Path(name).write_text("\n".join(lines) + "\n")
    return Path(name)


def _result(request: Row, answer: Answer | None = None) -> Row:
    answer = answer or _answer(request["body"])
    response = {"status_code": answer.code, "request_id": "r", "body": answer.body}
    return {"id": "batch_req_1", "custom_id": request["custom_id"], "response": response, "error": None}


def _contents() -> list[str]:
    with closing(sqlite3.connect("state/generations.db")) as connection:
        return list(connection.iterdump())


def _expired(request: Row) -> Row:
    error = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
    return {"id": "batch_req_2", "custom_id": request["custom_id"], "response": None, "error": error}


def test_the_requests_are_those_of_engine_server_and_hold_no_key(
    settings: Callable[..., Settings], store: GenerationStore, server: Scripted
) -> None:
    made = settings(seeds=True, extra={"top_k": 3, "top_p": None})
    printed = write_requests(OUT, store, made, "paraphrase_1")
    assert printed.startswith("paraphrase_1: 7 questions without an answer, 0 with one\nwrote requests.jsonl: run each")
    rows = _read(OUT)
    assert {(row["method"], row["url"]) for row in rows} == {("POST", "/v1/chat/completions")}
    assert KEY not in OUT.read_text()
    synthesize.run(made, "paraphrase_1", Path("out"))
    assert sorted(json.dumps(row["body"]) for row in rows) == sorted(map(json.dumps, server.bodies))
    assert len(store.answers(row["custom_id"] for row in rows)) == 7
    with pytest.raises(InputError, match=r"requests\.jsonl exists: name a new file"):
        write_requests(OUT, store, made, "paraphrase_1")
    printed = write_requests(Path("more.jsonl"), store, made, "paraphrase_1")
    assert printed.endswith("7 with one: nothing to write, run `dvc repro synthesize@paraphrase_1`")
    assert not Path("more.jsonl").exists()


@pytest.mark.parametrize(("most", "sizes"), [((3, 10**6), [3, 3, 1]), ((9, 10), [1] * 7), ((7, 10**6), [7])])
def test_large_tasks_are_split(
    settings: Callable[..., Settings],
    store: GenerationStore,
    monkeypatch: pytest.MonkeyPatch,
    most: tuple[int, int],
    sizes: list[int],
) -> None:
    monkeypatch.setattr(batches, "MOST_REQUESTS", most[0])
    monkeypatch.setattr(batches, "MOST_BYTES", most[1])
    write_requests(OUT, store, settings(), "paraphrase_1")
    names = [f"requests-{number + 1}.jsonl" for number in range(len(sizes))] if len(sizes) > 1 else ["requests.jsonl"]
    assert sorted(path.name for path in Path().glob("*.jsonl")) == names
    assert [len(_read(Path(name))) for name in names] == sizes


REFUSED = Answer({"error": {"message": "Unsupported parameter: 'max_tokens'. Use another.", "code": "x"}}, 400)
BAD: list[tuple[str, Callable[[Row], list[Any]], str, str | None]] = [
    ("refused", lambda row: [_result(row, REFUSED)], "1 failed", "HTTP 400: Unsupported parameter: 'max_tokens'."),
    ("no body", lambda row: [_result(row, Answer(None, 500))], "1 failed", "HTTP 500"),
    ("no answer", lambda row: [_result(row, Answer({"choices": []}))], "1 failed", "response without an answer"),
    ("silent", lambda row: [_result(row, said(""))], "1 failed", "the model said nothing"),
    ("vllm", lambda row: [_result(row, Answer(None, 404)) | {"error": {"message": "gone"}}], "1 failed",
     "HTTP 404: gone"),
    ("cancelled", lambda row: [_expired(row) | {"error": {"code": "batch_cancelled", "message": "It ended."}}],
     "1 failed", "no response: It ended."),
    ("expired", lambda row: [_expired(row)], "1 expired", "the batch expired"),
    ("cut", lambda row: [_result(row, said("a", "length"))], "1 cut at max_tokens",
     "the answer was cut at 40 tokens: raise the task's max_tokens"),
    ("filtered", lambda row: [_result(row, said(None, "content_filter"))], "1 filtered",
     "the server's content filter stopped the answer"),
    ("twice", lambda row: [_expired(row), _result(row, said("b")), _expired(row)], "2 repeated", None),
    ("no JSON", lambda row: [_result(row, said("c")), "{", "[" * 9999, "7", "{}"], "4 lines without a result", None),
    ("other", lambda row: [_result(row, said("d")), _result({"custom_id": "ab"}, said("e"))],
     "1 not of this project's questions", None),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "counted", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_a_batch_did_not_answer_is_counted_and_recorded(
    settings: Callable[..., Settings],
    store: GenerationStore,
    rows: Callable[[Row], list[Any]],
    counted: str,
    reason: str | None,
) -> None:
    write_requests(OUT, store, settings(), "paraphrase_1")
    first = _read(OUT)[0]
    results = _write("results.jsonl", rows(first))
    said_first = import_results(store, settings(), [results])
    assert counted in said_first.partition(";")[0].split(", ")
    assert ("1 answers" in said_first) == (reason is None) != ("--batch-out repeats" in said_first)
    assert store.failures([first["custom_id"]]) == ({first["custom_id"]: reason} if reason else {})
    before = _contents()
    import_results(store, settings(), [results])
    assert _contents() == before


def test_a_run_after_a_batch_asks_only_what_it_did_not_answer(
    settings: Callable[..., Settings], store: GenerationStore, server: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    settings()
    synthesize.main("paraphrase_1", batch_out=OUT)
    assert "7 questions without an answer" in capsys.readouterr().out
    refused, cut, expired, *rest = _read(OUT)
    output = [*map(_result, rest), _result(cut, said("a", "length"))]
    random.Random(0).shuffle(output)
    _write("output.jsonl", output)
    _write("errors.jsonl", [_expired(expired), _result(refused, REFUSED)])
    printed = cliptune("answers", "import", "--batch", "output.jsonl", "errors.jsonl")
    assert "4 answers, 1 failed, 1 expired, 1 cut at max_tokens; the next run or --batch-out repeats" in printed
    assert "4 in the store already, 1 cut at max_tokens; the" in cliptune(
        "answers", "import", "--batch", "output.jsonl"
    )
    write_requests(Path("again.jsonl"), store, settings(), "paraphrase_1")
    tokens = {row["custom_id"]: row["body"]["max_tokens"] for row in _read(Path("again.jsonl"))}
    assert tokens == {refused["custom_id"]: 40, cut["custom_id"]: 160, expired["custom_id"]: 40}
    # A longer answer that is cut again counts with the tokens it was allowed.
    usage = {"prompt_tokens": 9, "completion_tokens": 160}
    longer = _result(cut, Answer({**said("a", "length").body, "usage": usage}))  # type: ignore[dict-item]
    import_results(store, settings(), [_write("again-output.jsonl", [longer])])
    assert "cut at 160 tokens" in store.failures([cut["custom_id"]])[cut["custom_id"]]
    assert server.bodies == []
    counts = synthesize.run(settings(), "paraphrase_1", Path("out"))
    assert (counts.replayed, counts.generated, len(server.bodies)) == (4 + 1, 3, 3)
    with closing(sqlite3.connect("state/generations.db")) as connection:
        rows = connection.execute("select distinct task, model, sampling, attempt from generations").fetchall()
    # The same columns, whether a batch or the server has answered.
    assert len(rows) == 1


CAPTIONS = {"table": "paraphrases", "input": "data/pairs/train.parquet"}
CANDIDATES = {"table": "paraphrases", "input": "data/captions/paraphrases/paraphrase_semclip.parquet"}


@pytest.mark.parametrize(
    ("tasks", "rounds"),
    [
        # The answers, the judge's verdicts on them, and its verdicts in the other direction.
        ({"paraphrase_1": {**CAPTIONS, "judge_llm": "fake"}}, [3]),
        # The candidates, then the verdicts, and the judge's own text for each that it rejects.
        ({"paraphrase_semclip": CAPTIONS, "judge_paraphrase": CANDIDATES}, [1, 2]),
    ],
)
def test_questions_that_follow_from_answers_follow_in_later_batches(
    settings: Callable[..., Settings], store: GenerationStore, server: Scripted, tasks: Row, rounds: list[int]
) -> None:
    made, found = settings(tasks), []
    for name in tasks:
        for number in range(9):
            out = Path(f"{name}_{number}.jsonl")
            if "nothing to write" in write_requests(out, store, made, name):
                found.append(number)
                break
            results = _write(f"of_{out}", [_result(row) for row in _read(out)])
            assert import_results(store, made, [results]) == f"{len(_read(out))} answers"
        assert synthesize.run(made, name, Path("data/captions")).generated == 0
    assert (found, server.bodies) == (rounds, [])


def test_what_cannot_be_a_batch_or_its_results_is_refused_in_one_line(
    settings: Callable[..., Settings], store: GenerationStore, capsys: pytest.CaptureFixture[str]
) -> None:
    made = settings({"paraphrase_semclip": CAPTIONS, "judge_paraphrase": CANDIDATES})
    with pytest.raises(
        InputError, match=r"is about the answers of 'paraphrase_semclip', and .* is missing: import the"
    ):
        write_requests(OUT, store, made, "judge_paraphrase")
    with pytest.raises(SystemExit):
        synthesize.main(batch_out=OUT)
    assert "--batch-out writes the questions of one task: add --task" in capsys.readouterr().err
    write_requests(OUT, store, made, "paraphrase_semclip")
    results = _write("results.jsonl", [_result(row) for row in _read(OUT)])
    for options, message in (
        (f"--batch {OUT}", f"{OUT} holds requests: run it as a batch"),
        ("--batch params.yaml", "no line is a batch's result"),
        ("--batch gone.jsonl", "gone.jsonl is missing: name a batch's output or error file"),
        ("results.jsonl", "add --batch if it holds a batch's results"),
    ):
        assert message in cliptune("answers", "import", *options.split(), code=1)
    with pytest.raises(InputError, match=r"none of its 7 results answers a question of this project: import them with"):
        import_results(store, settings(model="another"), [results])
    with pytest.raises(
        InputError, match=r"'fake', whose engine is not `server`: set synthesize\.tasks\.paraphrase_sem"
    ):
        write_requests(Path("x.jsonl"), store, _local(made), "paraphrase_semclip")
    assert store.count() == 0


def _local(made: Settings) -> Settings:
    block = made.synthesize.model_copy(update={"llms": {"fake": {"engine": "local"}}})
    return made.model_copy(update={"synthesize": block})
