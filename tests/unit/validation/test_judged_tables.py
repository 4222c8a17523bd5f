"""Tables that a judge, classes or queries make: verdicts pass through, benchmark texts have checks of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from components.captions.tasks import find_task
from components.core.records import GENERATIONS, quarantine_of
from components.core.settings import Limits
from components.validation import validate
from components.validation.checks.general import says_name
from components.validation.checks.wording import find_echo, prompt_phrases
from components.validation.tables import find_table
from tests.unit.validation.conftest import (
    CAPTION,
    EVALUATION_QUERY,
    OTHER_CAPTION,
    Outcome,
    fake_probes,
    read_outcome,
    strict_settings,
    write_world,
)

Check = Callable[..., Outcome]
HOUND = "Scarlet backdrop; a tiny hound waits to the left of one huge tabby."
CATS = "Cats have a slim, supple body, soft fur, and long whiskers."
CAT_AND_DOG = "Cats are small with soft fur, while dogs have long snouts."


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """`check(table, rows, **limits)` validates a table whose one task gave `rows`."""
    monkeypatch.setattr("components.validation.validate.write_docs", lambda *_: None)

    def run(name: str, rows: list[dict[str, Any]], **limits: Any) -> Outcome:
        (answer,) = find_table(name).answers
        usual = {"sample": 0, "source": CAPTION, "key": "k", "accepted": True}
        numbered = [{"id": f"pair{number}"} | usual | row for number, row in enumerate(rows, start=1)]
        files = write_world(tmp_path, [*range(1, len(rows) + 1)])
        filled = [dict.fromkeys(GENERATIONS.schema.names) | row for row in numbered]
        table = pa.Table.from_pylist(filled, GENERATIONS.schema)
        GENERATIONS.write(files.captions / name / f"{answer.task}.parquet", table)
        settings = strict_settings(**limits)
        validate.run(settings, name, files, fake_probes(settings, files))
        return read_outcome(files, name)

    return run


@pytest.mark.parametrize("name", ["semclip_paraphrases", "negations"])
def test_what_the_judge_said_and_who_wrote_the_text_pass_through(check: Check, name: str) -> None:
    good = {"semclip_paraphrases": HOUND, "negations": "The small dog is not left of any cat, nor is red behind it."}
    rows = [
        {"text": good[name], "verdict": "yes", "written_by": "generator"},
        {"text": good[name], "verdict": "no", "written_by": "judge"},
        {"text": None, "accepted": False, "reason": "unparsable"},
    ]
    outcome = check(name, rows)
    assert [(row["verdict"], row["written_by"]) for row in outcome.accepted] == [("yes", "generator"), ("no", "judge")]
    assert [(row["verdict"], row["written_by"]) for row in outcome.quarantine] == [(None, None)]
    assert any("rejected:unparsable" in reason for reason in outcome.reasons)


def test_a_judged_text_may_echo_neither_question() -> None:
    phrases = prompt_phrases(find_task("judge_negation"))
    own = "A completely false version of a dog."
    assert find_echo(own, CAPTION, phrases) == "prompt"
    assert find_echo("Does it contradict or misrepresent the original", CAPTION, phrases) == "prompt"
    assert find_echo("No dog is left of the cat.", CAPTION, phrases) is None


def test_a_demonstration_inside_a_completion_is_no_echo() -> None:
    phrases = prompt_phrases(find_task("class_description"))
    assert find_echo("Cats possess four legs with distinctive paws.", "cat", phrases) is None
    assert find_echo("A longer description of the class cat.", "cat", phrases) == "prompt"


def test_differences_of_one_kind_are_filtered_as_the_others_are(check: Check) -> None:
    good = "A small dog beside a large cat on red in the first, but three little bees on blue in the second."
    texts = [good, "Dog and cat on red, not bees on blue.", f"#define {good}", good.replace("bees", "things")]
    rows = [{"text": text, "other_id": "pair0", "other_source": OTHER_CAPTION} for text in texts]
    outcome = check("differences_cub", rows, min_characters=60, max_words=40)
    assert [row["difference"] for row in outcome.accepted] == [good]
    assert [row["reason"] for row in outcome.quarantine] == [
        "difference_short",
        "difference_junk:list",
        "difference_one_sided:second",
    ]


def _description(text: str, name: str = "cat", **more: Any) -> dict[str, Any]:
    return {"source": name, "text": text, **more}


def test_descriptions_name_their_class_and_nothing_else_is_asked_of_them(check: Check) -> None:
    hidden = f"{CATS} {EVALUATION_QUERY}"
    rows = [
        _description(CATS),
        _description(hidden, id="same class again"),
        _description("Felines of any canine size, enormous and crimson: a cat."),
        _description("A supple body, soft fur, and long whiskers."),
        _description("cat"),
        _description("Sure! Here is a description of cats."),
        _description(f"{CATS} verbose"),
        _description("A black cat with a longer description of the class."),
    ]
    outcome = check("class_descriptions", rows)
    assert [row["description"] for row in outcome.accepted] == [row["text"] for row in rows[:3]]
    assert outcome.accepted[0]["class_name"] == "cat"
    wanted = ["unnamed:class", "length", "echo:lead_in", "tokens", "echo:prompt"]
    for reason, row in zip(wanted, outcome.quarantine, strict=True):
        assert f"description_{reason}" in row["reason"].split(";"), row
    assert outcome.quarantine[0]["class_name"] == "cat"


def test_class_differences_name_both_classes(check: Check) -> None:
    other = {"source": "cat", "other_id": "dog's", "other_source": "dog"}
    texts = [CAT_AND_DOG, "Cats are small with soft fur and whiskers.", "It is small, while dogs have long snouts."]
    outcome = check("class_differences", [other | {"text": text} for text in texts])
    assert [(row["class_name"], row["other_class_name"], row["other_id"]) for row in outcome.accepted] == [
        ("cat", "dog", "dog's")
    ]
    assert [row["reason"] for row in outcome.quarantine] == ["difference_unnamed:second", "difference_unnamed:first"]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("Two CACTI stand tall.", "cactus", True),
        ("Flamingos are pink.", "flamingo", True),
        ("Soft mice hide.", "mouse", True),
        ("A pair of glasses.", "glasses", True),
        ("The sparrow is brown.", "Le Conte's Sparrow", True),
        ("A crop seen from above.", "PermanentCrop", True),
        ("Some maple trees.", "maple_tree", True),
        ("A bistro with tables.", "bistro, indoor", True),
        ("A catalogue of furs.", "cat", False),
        ("It is small and soft.", "cat", False),
        ("Anything.", "!!", False),
    ],
)
def test_a_text_says_a_name_in_any_number(text: str, name: str, *, said: bool) -> None:
    assert says_name(text, name) is said


def test_query_paraphrases_may_be_evaluation_sentences_but_no_copies(check: Check) -> None:
    query = "A small dog is left of a large cat."
    texts = [EVALUATION_QUERY, "A little canine waits beside a big cat.", "a SMALL dog is left of a large cat", "dog"]
    outcome = check("query_paraphrases", [{"source": query, "text": text} for text in texts])
    assert [row["paraphrase"] for row in outcome.accepted] == texts[:2]
    assert outcome.accepted[0]["query"] == query
    assert {"paraphrase_copies:source", "paraphrase_length"} <= outcome.reasons


def _judgement(score: float) -> str:
    keys = dict.fromkeys(find_task("score_difference").outputs, "text")
    return json.dumps(keys | {"score": score}, separators=(",", ":"))


def test_scores_are_numbers_and_have_a_limit_where_one_is_set(check: Check) -> None:
    rows = [
        {"text": _judgement(score), "other_id": "pair0", "other_source": OTHER_CAPTION, "sample": number}
        for number, score in enumerate((0, 0.5, 1))
    ]
    free = check("difference_scores", rows)
    assert [row["score"] for row in free.accepted] == [0.0, 0.5, 1.0]
    assert [(row["caption"], row["other_caption"]) for row in free.accepted] == [(CAPTION, OTHER_CAPTION)] * 3
    strict = check("difference_scores", rows, tables={"difference_scores": Limits(min_score=0.75)})
    assert [row["score"] for row in strict.accepted] == [1.0]
    assert strict.reasons == {"judgement_score"}


def test_quarantines_keep_what_was_asked_about() -> None:
    for name, asked_about in (
        ("class_differences", "class_name"),
        ("query_paraphrases", "query"),
        ("negations", "caption"),
    ):
        schema = quarantine_of(find_table(name).table).schema
        required = [field.name for field in schema if not field.nullable]
        assert required == ["id", "sample", asked_about, "reason"]
