"""Prompt tasks ask their papers' questions, and read answers without raising.

`prompts.json` has the messages of every task in both wordings. Stored answers are keyed by them: a changed letter would
ask all questions again. The published wordings are those of PC-CLIP's appendices A.2, A.3, B.1 and B.3, the Adapting
paper's appendix A.2, SemCLIP's notebook (whose text blocks are indented), and the released code of ParaCLIP
(paraphrasing/call_openai.py), LaCLIP (rewrite/llama_rewrite.py) and NegationCLIP (src/data_generation.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.captions.prompting import tasks
from components.captions.prompting.pictures import SHOWN
from components.captions.prompting.request import COMPLETION, Chat, Inputs
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.discovery import file_names
from components.core.system.errors import InputError

NAMES = file_names(tasks.__path__)
GOLD = Path(__file__).with_name("prompts.json")


def _inputs(name: str, text: str = "a cake plate") -> Inputs:
    return {column: f"{text} ({column})" for column in find_task(name).inputs}


def _render(name: str) -> dict[str, Chat]:
    """Every wording of a task's question; also with pictures, where it can show them."""
    task, inputs = find_task(name), _inputs(name)
    wordings = ["own", "published"] if task.published is not None else ["own"]
    chats = {wording: task.render(inputs, wording) for wording in wordings}
    seeing = {f"{wording} with pictures": task.render({**inputs, SHOWN: "1"}, wording) for wording in wordings}
    return chats | (seeing if task.pictures else {})


def test_every_question_is_word_for_word_the_stored_one() -> None:
    assert {name: _render(name) for name in NAMES} == json.loads(GOLD.read_text("utf-8"))


def test_a_file_has_a_task_of_its_name_or_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = "from components.captions.prompting.tasks.paraphrases import TASKS as REWRITES\n"
    (tmp_path / "shorten_alone.py").write_text(f"{imported}TASK = REWRITES[0]\n")
    several = 'TASKS = (\n    replace(REWRITES[0], name="lengthen"),\n    replace(REWRITES[1], name="soften"),\n)\n'
    (tmp_path / "others.py").write_text(f"from dataclasses import replace\n\n{imported}{several}")
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    assert set(file_names(tasks.__path__)) - set(NAMES) == {"shorten_alone", "lengthen", "soften"}
    assert find_task("shorten_alone") is find_task("paraphrase_1")
    assert [find_task(name).inputs for name in ("lengthen", "soften")] == [("caption",), ("paraphrase_1",)]
    with pytest.raises(InputError, match="'others' is unknown"):
        find_task("others")


@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_consistent(name: str) -> None:
    task, inputs = find_task(name), _inputs(name)
    messages = task.messages(inputs)
    assert task.name == name
    assert task.accepts(inputs) is None
    assert all(text in messages[-1]["content"] for column, text in inputs.items() if column != SHOWN)
    assert messages[:-1] == task.messages(_inputs(name, "a tray"))[:-1], "the constant part must stand first"
    assert len(set(task.outputs)) == len(task.outputs) > 0
    assert not set(task.outputs) & set(task.inputs)
    if messages[0]["role"] != COMPLETION:
        system, *turns = [message["role"] for message in messages]
        assert (system, turns) == ("system", ["user", *["assistant", "user"] * (len(turns) // 2)])
    if task.published is None:
        with pytest.raises(InputError, match=rf"synthesize.tasks.{name}.prompt: the task has one wording"):
            task.render(inputs, "published")


def test_answers_are_cleaned_and_absent_objects_short() -> None:
    answers = {"an Apple\nIt is often on plates.": "apple", "A large silver fork.": "large silver fork"}
    assert {answer: find_task("name_absent").parse(answer) for answer in answers} == answers
    assert [find_task("name_absent").parse(answer) for answer in ("The object is a fork.", ".", "")] == [None] * 3
    answers = {
        "\n  A  dog\nmore": "A dog",
        "": None,
        '""\n\n': None,
        "**A dog**": "A dog",
        '"A sign that says "stop""': 'A sign that says "stop"',
        '"stop" says a sign': '"stop" says a sign',
        '"Stop" and "go"': '"Stop" and "go"',
        "\u2018The dog\u2019s bowl\u2019": "The dog\u2019s bowl",
        "'It's a dog'": "It's a dog",
        "the dogs' bowl": "the dogs' bowl",
        '"A dog': "A dog",
        'A dog"': "A dog",
        "2) A dog": "A dog",
        "- A dog": "A dog",
        "Option 1: A dog\nOption 2: A cat": "A dog",
        '1. "A dog"': "A dog",
        "2 dogs": "2 dogs",
        "1.5 m of snow": "1.5 m of snow",
        "```text\nA dog\n```": "A dog",
        "A dog\x85on a\u2028mat\r\nmore": "A dog on a mat",
    }
    assert {answer: find_task("paraphrase_1").parse(answer) for answer in answers} == answers


def test_only_paraclip_takes_only_short_captions(settings: Settings) -> None:
    captions = {"dog": False, "a dog": True, "w " * 15: True, "w " * 16: False}
    of_captions = [name for name in NAMES if find_task(name).inputs == ("caption",) and name != "type_query"]
    names = [*of_captions, "difference", "difference_cub"]
    for name in names:
        for caption, short in captions.items():
            assert (find_task(name).accepts({"caption": caption}) is None) is (short or name != "paraphrase_1")
        # In the synthetic dataset every task is about the same captions.
        assert name == "paraphrase_1" or settings.synthesize.tasks[name].caption_length == (2, 15)


@settings(max_examples=60)
@given(answer=st.text())
def test_parsing_never_raises_never_gives_empty_text_and_never_reads_thoughts(answer: str) -> None:
    for name in NAMES:
        parsed = find_task(name).parse(answer)
        assert parsed is None or parsed.strip()
        assert find_task(name).parse(f'<think>"Yes", a dog.</think>{answer}') == parsed
