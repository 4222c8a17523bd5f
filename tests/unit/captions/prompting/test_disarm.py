"""A hostile caption stays what it is: text between the quotes of one message, on one line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.captions.prompting import tasks
from components.captions.prompting.request import PICTURE, TURN_MARKS, disarm
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.system.discovery import file_names

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


def test_a_harmless_caption_is_unchanged() -> None:
    captions = ["I <3 NY", "a > b | c < d", "<PERSON> at a show", "it's 5'", "[R67] two cats", "x <| y"]
    assert [disarm(caption) for caption in captions] == captions


def test_joiners_within_a_sign_stay() -> None:
    family, heart = "a \U0001f468\u200d\U0001f469\u200d\U0001f467 walks", "\u2764\ufe0f\u200d\U0001f525"
    persian, devanagari = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937"
    for text in (family, heart, persian, devanagari):
        assert disarm(text) == disarm(f"\u200d{text}\u200c") == text


def test_invisible_characters_are_removed() -> None:
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
