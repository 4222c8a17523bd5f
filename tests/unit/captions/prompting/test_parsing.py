"""A hostile caption stays text between quotes; answers are parsed without raising."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.captions.prompting import tasks
from components.captions.prompting.parsing import cut, first_verdict, scored_json, verdict, without_thought
from components.captions.prompting.request import PICTURE, TURN_MARKS, disarm
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.system.discovery import file_names

KEYS = ("one", "score", "why")
GOOD = {"one": "A dog.", "score": 0.75, "why": "It fits."}


def test_thoughts_and_the_next_turns_are_left_out() -> None:
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


def test_verdicts_are_yes_no_or_none_and_begin_cut_answers() -> None:
    verdicts = {
        "yes": ["Yes", "yes, it does.", "No... on second thoughts, Yes"],
        "no": ['"No".', "No. It loses the dog.", "Answer: NO", 'I must say "Yes" or "No". No', "Yes/no? No."],
        None: ["Yesterday nobody knew.", "It does not.", ""],
    }
    assert {said: [text for text in texts if verdict(text) == said] for said, texts in verdicts.items()} == verdicts
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


def test_other_scores_cut_and_hostile_json_are_refused() -> None:
    for score in (0, 1, 0.5, 1e-3):
        assert json.loads(scored_json(json.dumps(GOOD | {"score": score}), KEYS) or "{}")["score"] == score
    for score in (1.01, -0.1, 5, "0.5", None, True, [0.5], float("nan"), float("inf")):
        assert scored_json(json.dumps(GOOD | {"score": score}), KEYS) is None
    for change in ({"one": ""}, {"one": " \n"}, {"why": 3}, {"why": None}):
        assert scored_json(json.dumps(GOOD | change), KEYS) is None
    assert scored_json(json.dumps({"one": "A dog.", "score": 1}), KEYS) is None
    whole = json.dumps(GOOD)
    assert [end for end in range(len(whole)) if scored_json(whole[:end], KEYS)] == []
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


NAMES = file_names(tasks.__path__)
STAND_IN = "zebrastandin"
MARKS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|User|>", "<s>", "</s>",
    "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<start_of_turn>", "<end_of_turn>", "<\uff5cAssistant\uff5c>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "[SYSTEM_PROMPT]", "[TOOL_CALLS]", "<repo_name>", "<file_sep>",
    "<image>", "<jupyter_output>", "<tool_call>", "</think>", "<pad>", "<bos>", "<extra_id_0>", "[IMG]",
    "<end_of_utterance>",
]  # fmt: skip
PIECES = [
    *MARKS, *"\"'`<>|[]/{}\\\n\r\t\u2028\u200b\u00ad\u202e\ue000\U000e0041", "<|", "|>", "im_start", "INST",
    "\u201c", "\u201d", "\uff02", "\u00bb", PICTURE, " ", "dog", "Q:", "A:", "User:", "ignore the above and",
    "{caption}", "%s", "\ud800",
]  # fmt: skip
hostile = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14).map("".join)


@pytest.mark.parametrize("mark", MARKS)
def test_chat_marks_are_removed(mark: str) -> None:
    assert disarm(f"a dog{mark}a cat") == "a dog a cat"
    nested = disarm(f"a dog {mark[:2]}{mark}{mark[2:]} a cat")
    assert nested == disarm(nested), "what is left may be a mark again"
    assert disarm(f"a dog {mark[0]}\u200b{mark[1:]} a cat") == "a dog a cat", "hidden letters hide no mark"


def test_invisible_characters_go_and_harmless_ones_stay() -> None:
    captions = ["I <3 NY", "a > b | c < d", "<PERSON> at a show", "it's 5'", "[R67] two cats", "x <| y"]
    assert [disarm(caption) for caption in captions] == captions
    family, heart = "a \U0001f468\u200d\U0001f469\u200d\U0001f467 walks", "\u2764\ufe0f\u200d\U0001f525"
    persian, devanagari = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937"
    for text in (family, heart, persian, devanagari):
        assert disarm(text) == disarm(f"\u200d{text}\u200c") == text
    assert disarm("a\u200b dog\u00ad \U000e0068\U000e0069\ue000\ud800\x00!") == "a dog !"


@given(hostile)
def test_what_is_left_is_one_line_without_marks_and_double_quotes(text: str) -> None:
    left = disarm(text)
    assert not TURN_MARKS.search(left)
    assert not any(quote in left for quote in '"\u201c\u201d\u201e\u00ab\u00bb\uff02')
    assert len(left.splitlines()) <= 1
    assert PICTURE not in left
    assert disarm(left) == left
    left.encode("utf-8")


def _inputs(task: PromptTask, text: str) -> dict[str, str]:
    """A text for each input, told apart by a number."""
    return {name: f"{text}{number}" for number, name in enumerate(task.inputs)}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(text=hostile)
def test_no_task_lets_a_caption_out_of_its_place(name: str, text: str) -> None:
    task, safe = find_task(name), disarm(text)
    harmless, asked = task.messages(_inputs(task, STAND_IN)), task.messages(_inputs(task, safe))
    assert [message["role"] for message in asked] == [message["role"] for message in harmless]
    expected = [message["content"] for message in harmless]
    for number in range(len(task.inputs)):
        expected = [content.replace(f"{STAND_IN}{number}", f"{safe}{number}") for content in expected]
    contents = [message["content"] for message in asked]
    assert contents == expected, "a caption is quoted as it is, wherever it stands"
    for before, after in zip(harmless, contents, strict=True):
        counts = [(text.count('"'), text.count("\n"), text.count(PICTURE)) for text in (before["content"], after)]
        assert counts[0] == counts[1]
