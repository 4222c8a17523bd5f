"""Answers are parsed without raising: cut texts, verdicts, scored JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from components.captions.prompting.parsing import cut, first_verdict, scored_json, verdict, without_thought

KEYS = ("one", "score", "why")
GOOD = {"one": "A dog.", "score": 0.75, "why": "It fits."}


def test_a_text_ends_before_the_next_turn_of_the_model() -> None:
    answers = {
        "A: The dog is\nlarger.": "The dog is larger.",
        "The dog is larger. Q: What is the visual": "The dog is larger.",
        "The dog is larger. Note: I cannot see": "The dog is larger.",
        "The dog is larger. I hope this helps": "The dog is larger.",
        "#1: The dog. #2: The cat.": "The dog.",
        "The dog on a notebook, with a musical note.": "The dog on a notebook, with a musical note.",
        "FAQ: a sign. Keynote: a hall. Hawaii hopeful.": "FAQ: a sign. Keynote: a hall. Hawaii hopeful.",
        "```text\nThe dog is larger.\n```": "The dog is larger.",
        "Q: What": None,
        "The dog is larger.\n\n\n\n\n\n\n\nAnd": None,
    }
    assert {answer: cut(answer) for answer in answers} == answers


def test_a_verdict_is_yes_or_no_or_none() -> None:
    verdicts = {
        "yes": ["Yes", "yes, it does.", "No... on second thoughts, Yes"],
        "no": ['"No".', "No. It loses the dog.", "Answer: NO", 'I must say "Yes" or "No". No', "Yes/no? No."],
        None: ["Yesterday nobody knew.", "It does not.", ""],
    }
    assert {said: [text for text in texts if verdict(text) == said] for said, texts in verdicts.items()} == verdicts


def test_thoughts_are_left_out() -> None:
    answers = {
        "<think>Yes?</think>\n\nNo": "No",
        "[THINK]Yes?[/THINK]No": "No",
        "Okay, they want\na dog.\n</think>\n\nOne hound.": "One hound.",
        "<think>a</think> b <thinking>c</thinking> One hound.": "One hound.",
        "<think>Okay, they want": "",
        "One hound. <think>Was that": "One hound.",
        "A dog thinks <3 of [food].": "A dog thinks <3 of [food].",
    }
    assert {answer: without_thought(answer) for answer in answers} == answers


def test_a_cut_answer_begins_with_its_verdict() -> None:
    assert (first_verdict("Yes, the"), first_verdict('"No." It')) == ("yes", "no")
    for answer in ("I would say yes", '"Yes" or "No"? I', "Yes/no"):
        assert first_verdict(answer) is None


def test_json_is_found_whatever_surrounds_it() -> None:
    for answer in (
        json.dumps(GOOD, indent=4),
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"Here is {{my}} JSON: {json.dumps(GOOD)} I hope it helps {{",
        json.dumps({"more": [1], **dict(reversed(GOOD.items()))}),
    ):
        assert scored_json(answer, KEYS) == '{"one":"A dog.","score":0.75,"why":"It fits."}'


def test_json_with_another_score_or_without_a_text_is_refused() -> None:
    for score in (0, 1, 0.5, 1e-3):
        assert json.loads(scored_json(json.dumps(GOOD | {"score": score}), KEYS) or "{}")["score"] == score
    for score in (1.01, -0.1, 5, "0.5", None, True, [0.5], float("nan"), float("inf")):
        assert scored_json(json.dumps(GOOD | {"score": score}), KEYS) is None
    for change in ({"one": ""}, {"one": " \n"}, {"why": 3}, {"why": None}):
        assert scored_json(json.dumps(GOOD | change), KEYS) is None
    assert scored_json(json.dumps({"one": "A dog.", "score": 1}), KEYS) is None


def test_truncated_json_is_refused_wherever_it_ends() -> None:
    whole = json.dumps(GOOD)
    assert [end for end in range(len(whole)) if scored_json(whole[:end], KEYS)] == []


def test_hostile_json_is_refused() -> None:
    for answer in ("{" * 100_000, '{"one":' * 5_000, "[" * 100_000 + "{", '{"score": ' + "9" * 10_000 + "}"):
        assert scored_json(answer, KEYS) is None
    escaped = scored_json('{"one": "\\ud800", "score": 1, "why": "\\u00e9"}', KEYS)
    assert escaped is not None
    assert escaped.encode()


@given(
    one=st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(str.strip),
    score=st.floats(0, 1),
    before=st.text(alphabet="abc {}\n"),
)
def test_parsing_what_was_parsed_changes_nothing(one: str, score: float, before: str) -> None:
    found = scored_json(before + json.dumps(GOOD | {"one": one, "score": score}), KEYS)
    assert found is not None
    assert scored_json(found, KEYS) == found
    assert json.loads(found)["one"] == " ".join(one.split())
