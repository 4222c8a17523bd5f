"""Prompt tasks ask what the paper asks and take answers apart without raising."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.captions import tasks
from components.captions.inputs.sources import SHOWN
from components.captions.request import COMPLETION, PICTURE, Inputs
from components.captions.tasks import find_task
from components.core.discovery import file_names
from components.core.errors import InputError
from components.core.settings import Settings

NAMES = file_names(tasks.__path__)
OLDER_PROMPTS = {
    "paraphrase_1": 'Paraphrase the given caption "a cake plate" concisely while preserving the meaning.',
    "paraphrase_2": (
        'Paraphrase the given text "a cake plate" concisely while preserving the meaning and avoiding use of existing '
        "words."
    ),
    "rewrite": 'Rewrite the image caption "a cake plate" in your own words.',
    "negate_semclip": "Generate a completely false version of this sentence: a cake plate",
    "negate_terms": (
        'Put one of the words "no", "not" and "without" into the subject or the predicate of the caption '
        '"a cake plate" so that it denies what the picture shows.'
    ),
    "swap_negative": 'Exchange two things of the caption "a cake plate" so that it describes another picture.',
}
"""Questions whose answers are stored: a changed letter would ask all of them anew."""


def _inputs(name: str, text: str = "a cake plate") -> Inputs:
    return {column: f"{text} ({column})" for column in find_task(name).inputs}


def _question(name: str, **inputs: str) -> str:
    return find_task(name).messages(inputs)[-1]["content"]


@pytest.mark.parametrize("name", OLDER_PROMPTS)
def test_questions_with_stored_answers_stay(name: str) -> None:
    (column,) = find_task(name).inputs
    system, question = find_task(name).messages({column: "a cake plate"})
    assert question["content"] == OLDER_PROMPTS[name]
    false = name in ("negate_semclip", "negate_terms", "swap_negative")
    assert system["content"] == ("You write captions that are false." if false else "You rewrite captions.")


def _published(name: str, **inputs: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in find_task(name).render(inputs, "published")]


def test_published_questions_of_paraclip_have_no_system_message() -> None:
    """paraphrasing/call_openai.py of github.com/dmis-lab/ParaCLIP: one message, of the user."""
    for name in ("paraphrase_1", "paraphrase_2"):
        (column,) = find_task(name).inputs
        assert _published(name, **{column: "a cake plate"}) == [("user", OLDER_PROMPTS[name])]


def test_published_questions_of_semclip_are_those_of_its_notebook() -> None:
    assert _published("paraphrase_semclip", caption="a cake plate") == [
        ("user", "Rephrase the following sentence with the same meaning:\na cake plate")
    ]
    assert _published("negate_semclip", caption="a cake plate") == [
        ("user", "Generate a completely false version of this sentence:\na cake plate")
    ]
    # The notebook's text blocks are indented by four spaces and end on an indented empty line.
    assert _published("judge_paraphrase", caption="a dog", paraphrase="one hound") == [
        (
            "user",
            '\n    The original sentence is: "a dog"\n    The generated paraphrase is: "one hound"\n'
            '    Does the paraphrase accurately retain the meaning of the original? Respond with "Yes" or "No".\n    ',
        )
    ]
    assert _published("judge_negation", caption="a dog", negation="no dog") == [
        (
            "user",
            '\n    The original sentence is: "a dog"\n    The generated false sentence is: "no dog"\n'
            "    Does the false sentence contradict or misrepresent the original? "
            'Respond with "Yes" or "No".\n    ',
        )
    ]


def test_published_differences_are_one_text_to_go_on_with() -> None:
    """PC-CLIP, appendix B.1."""
    asked = (
        "What is the visual difference between an image with a description of "
        '"{}" and an image with a description of "{}"?'
    ).format
    first = asked("a grey bird with small wings and a yellow beak", "a blue bird with large wings and a brown beak")
    second = asked("a brown bird with an orange beak", "a black bird with yellow beak")
    text = (
        f"Q: {first}\n\nA: Difference in color and size of the wings. One is grey and has small wings and a yellow "
        "beak, while the other is blue and has large wings and a brown beak.\n\n"
        f"Q: {second}\n\nA: The color of the body and the beaks. One has a brown body and orange beak, while the other "
        f"is black with a yellow beak.\n\nQ: {asked('a red bird', 'a jay')}\n\nA:"
    )
    assert _published("difference_cub", caption="a red bird", other_caption="a jay") == [(COMPLETION, text)]
    ((role, text),) = _published("difference", caption="a cat", other_caption="a dog")
    assert (role, text.count("Q: "), text.count("A: ")) == (COMPLETION, 5, 4)
    assert text.endswith('image captioned with "a cat" and an image captioned with "a dog"?\n\nA:')


def test_published_rewrites_are_asked_about_as_laclips_code_does() -> None:
    """rewrite/llama_rewrite.py of github.com/LijieFan/LaCLIP: a text block of nine lines, indented by twelve spaces."""
    ((role, text),) = _published("rewrite", caption="a cake plate")
    first, *lines = text.split("\n")
    assert (role, first) == (COMPLETION, "write image captions differently,")
    assert [line[:12].strip() for line in lines] == [""] * 8
    assert lines[0::2] == [""] * 4
    assert [line.count(" => ") for line in lines[1:7:2]] == [1, 1, 1]
    assert lines[7] == " " * 12 + "a cake plate =>"


def test_published_questions_of_negationclip_are_those_of_its_code() -> None:
    """src/data_generation.py of github.com/parkquasar/NegationCLIP."""
    assert _published("name_absent", caption="a cake plate") == [
        ("system", "You are a helpful chatbot that answers with only one word."),
        (
            "user",
            "Name an object that is not mentioned in the caption, but is likely to be in the image corresponding to "
            "the caption 'a cake plate'.",
        ),
    ]
    system, *turns = _published("state_absence", caption="a cake plate", absent_object="fork")
    assert system == ("system", "You are a helpful chatbot that generates a concise caption.")
    assert turns == [
        ("user", "Add the absence of the apron to the caption 'a woman cutting bread in a kitchen'."),
        ("assistant", "a woman not wearing an apron cutting bread in a kitchen"),
        ("user", "Add the absence of the ball to the caption 'two dogs running along a beach'."),
        ("assistant", "two dogs running along a beach with no ball"),
        ("user", "Add the absence of the fork to the caption 'a cake plate'."),
    ]


@pytest.mark.parametrize("name", ["rewrite", "negate_terms", "swap_negative", "name_absent", "state_absence"])
def test_a_prompt_that_its_paper_does_not_print_says_so(name: str) -> None:
    assert "wording ours" in find_task(name).citation


def test_other_published_questions_are_the_papers_words_alone() -> None:
    """PC-CLIP, appendices A.2 and B.3; the Adapting paper's table A.1, whose GPT-3 goes on with a text."""
    for name, role in (("class_difference", "user"), ("score_difference", "user"), ("query_paraphrase", COMPLETION)):
        inputs = {**_inputs(name), SHOWN: "1"}
        assert _published(name, **inputs) == [(role, _question(name, **inputs))]


@pytest.mark.parametrize("name", [name for name in NAMES if find_task(name).published is None])
def test_a_task_of_one_wording_says_so(name: str) -> None:
    with pytest.raises(InputError, match=rf"synthesize.tasks.{name}.prompt: the task has one wording"):
        find_task(name).render(_inputs(name), "published")
    assert find_task(name).render(_inputs(name), "own") == find_task(name).messages(_inputs(name))


def test_the_semclip_questions_are_the_papers() -> None:
    assert _question("paraphrase_semclip", caption="a cake plate") == (
        "Rephrase the following sentence with the same meaning: a cake plate"
    )
    assert _question("judge_paraphrase", caption="a dog", paraphrase="one hound") == (
        'The original sentence is: "a dog"\nThe generated paraphrase is: "one hound"\n'
        'Does the paraphrase accurately retain the meaning of the original? Respond with "Yes" or "No".'
    )
    assert _question("judge_negation", caption="a dog", negation="no dog") == (
        'The original sentence is: "a dog"\nThe generated false sentence is: "no dog"\n'
        'Does the false sentence contradict or misrepresent the original? Respond with "Yes" or "No".'
    )


def test_the_difference_question_names_both_in_order_after_the_papers_four_demonstrations() -> None:
    messages = find_task("difference").messages({"caption": "a cat", "other_caption": "a dog"})
    turned = find_task("difference").messages({"caption": "a dog", "other_caption": "a cat"})
    asked = 'What is the visual difference between an image captioned with "{}" and an image captioned with "{}"?'
    assert messages[-1]["content"] == asked.format("a cat", "a dog")
    assert turned[-1]["content"] == asked.format("a dog", "a cat")
    assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * 4, "user"]
    assert messages[5]["content"] == asked.format("a photo of a house", "a photo of an airport")
    assert messages[8]["content"] == (
        "The airport contains travelers and airplanes and is a public space, while the house is smaller and is a "
        "private space."
    )


def test_the_cub_question_asks_about_descriptions_after_two_demonstrations() -> None:
    messages = find_task("difference_cub").messages({"caption": "a cat", "other_caption": "a dog"})
    assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * 2, "user"]
    assert messages[-1]["content"] == (
        'What is the visual difference between an image with a description of "a cat" and an image with a description '
        'of "a dog"?'
    )
    assert messages[2]["content"].startswith("Difference in color and size of the wings. One is grey")


def test_the_class_questions_are_the_papers() -> None:
    assert _question("class_difference", class_name="crab", other_class_name="lobster") == (
        "In less than 30 words, what is the description of the visual difference (e.g., in terms of color or shape) "
        "between an image of crab and an image of lobster?"
    )
    (prompt,) = find_task("class_description").messages({"class_name": "crab"})
    assert prompt["role"] == COMPLETION
    assert prompt["content"].startswith('Q: What is a longer description of the visual features of the class "dog"?\n')
    assert prompt["content"].endswith('\n\nQ: What is a longer description of the class "crab"?\n\nA:')
    assert "snout, all contributing to their unique and diverse physical appearances.\n\nQ:" in prompt["content"]


def test_the_query_question_is_the_papers() -> None:
    assert _question("query_paraphrase", query="A man on skis.") == (
        "Paraphrase the following sentence, using as many synonyms as possible: A man on skis."
    )


def test_absences_are_asked_about_in_two_steps() -> None:
    """The wording is ours; the second step has two demonstrations, as in NegationCLIP's released code."""
    assert _question("name_absent", caption="a cake plate") == (
        'Which object could well be in the picture with the caption "a cake plate" although the caption does not name '
        "it? Answer with the object's name alone."
    )
    messages = find_task("state_absence").messages({"caption": "a cake plate", "absent_object": "fork"})
    assert [message["role"] for message in messages] == ["system", *["user", "assistant"] * 2, "user"]
    assert messages[-1]["content"] == 'Say in the caption "a cake plate" that there is no fork.'
    assert messages[2]["content"] == "two plates of pasta on a wooden table with no glass"


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("Fork.", "fork"),
        ("A teddy bear", "teddy bear"),
        ("an Apple\nIt is often on plates.", "apple"),
        ("The fork", "fork"),
        ("A large silver fork", "large silver fork"),
        ("The object is a fork.", None),
        ("the.", "the"),
        (".", None),
        ("", None),
    ],
)
def test_an_absent_object_is_a_name_of_at_most_three_words(answer: str, name: str | None) -> None:
    assert find_task("name_absent").parse(answer) == name


def test_units_and_their_foils_are_asked_about_one_after_the_other() -> None:
    assert _question("name_unit", caption="a cake plate") == (
        'Take one part out of the caption "a cake plate": one thing with all that is said of it, or two things and how '
        "they stand to each other. Answer with that phrase alone."
    )
    assert _question("change_unit", unit="a plate", caption="a cake plate") == (
        'Change one thing, attribute or relation in "a plate" so that it is false of the picture with the caption '
        '"a cake plate". Answer with the changed phrase alone.'
    )
    assert find_task("change_unit").parse('"A bowl."\nIt is no plate.') == "A bowl."


def test_scores_are_asked_with_marks_for_both_pictures_or_without_pictures() -> None:
    inputs = {"caption": "a cat", "other_caption": "a dog", "difference": "The cat is small."}
    blind, seeing = _question("score_difference", **inputs), _question("score_difference", **inputs, **{SHOWN: "1"})
    assert find_task("score_difference").pictures
    assert _published("score_difference", **inputs, **{SHOWN: "1"}) == [("user", seeing)]
    assert PICTURE not in blind
    assert f"Image 1: {PICTURE}\nImage 2: {PICTURE}\nComparative description: The cat is small.\n" in seeing
    assert "two images with their captions" in seeing
    for question in (blind, seeing):
        assert "Image 1 caption: a cat\nImage 2 caption: a dog\n" in question
        assert "1 means the description perfectly captures the key differences" in question
        assert all(f'"{key}": ...' in question.replace('"..."', "...") for key in find_task("score_difference").outputs)


def test_scores_are_read_from_json_alone() -> None:
    parse = find_task("score_difference").parse
    answer = {"image1_description": "a cat", "image2_description": "a dog", "score": 0.25, "reasoning": "It hides one."}
    assert parse(f"```json\n{json.dumps(answer, indent=2)}\n```") == json.dumps(answer, separators=(",", ":"))
    assert parse(json.dumps(answer | {"score": 2})) is None
    assert parse("0.25") is None


@pytest.mark.parametrize("name", NAMES)
def test_every_task_asks_about_all_its_inputs_last(name: str) -> None:
    task = find_task(name)
    messages = task.messages(_inputs(name))
    assert task.name == name
    assert task.accepts(_inputs(name)) is None
    assert all(text in messages[-1]["content"] for text in _inputs(name).values())
    assert messages[:-1] == task.messages(_inputs(name, "a tray"))[:-1], "what is the same must stand first"


@pytest.mark.parametrize("name", NAMES)
def test_every_task_says_what_it_gives(name: str) -> None:
    task = find_task(name)
    assert task.outputs
    assert len(set(task.outputs)) == len(task.outputs)
    assert not set(task.outputs) & set(task.inputs)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if find_task(name).messages(_inputs(name))[0]["role"] != COMPLETION]
)
def test_every_chat_starts_with_a_system_message_and_takes_turns(name: str) -> None:
    system, *turns = [message["role"] for message in find_task(name).messages(_inputs(name))]
    assert system == "system"
    assert turns == ["user", *["assistant", "user"] * (len(turns) // 2)]


READ_CAPTIONS = [name for name in NAMES if "caption" in find_task(name).inputs and len(find_task(name).inputs) == 1]
READ_CAPTIONS += ["difference", "difference_cub"]


@pytest.mark.parametrize("name", READ_CAPTIONS)
@pytest.mark.parametrize(("caption", "short"), [("dog", False), ("a dog", True), ("w " * 15, True), ("w " * 16, False)])
def test_paraclip_alone_takes_short_captions_alone(name: str, caption: str, *, short: bool) -> None:
    assert (find_task(name).accepts({"caption": caption}) is None) is (short or name != "paraphrase_1")


def test_the_embedded_world_asks_every_task_about_the_same_captions(settings: Settings) -> None:
    for name in READ_CAPTIONS:
        assert name == "paraphrase_1" or settings.synthesize.tasks[name].words == (2, 15)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ('"A dog."', "A dog."),
        ("\n  A  dog\nmore", "A dog"),
        ("", None),
        ('""\n\n', None),
        ("**A dog**", "A dog"),
        ('A sign that says "stop"', 'A sign that says "stop"'),
        ('"A sign that says "stop""', 'A sign that says "stop"'),
        ('"stop" says a sign', '"stop" says a sign'),
        ('"Stop" and "go"', '"Stop" and "go"'),
        ("\u201cA dog.\u201d", "A dog."),
        ("\u2018The dog\u2019s bowl\u2019", "The dog\u2019s bowl"),
        ("'It's a dog'", "It's a dog"),
        ("the dogs' bowl", "the dogs' bowl"),
        ('"A dog', "A dog"),
        ('A dog"', "A dog"),
        ("1. A dog", "A dog"),
        ("2) A dog", "A dog"),
        ("- A dog", "A dog"),
        ("\u2022 A dog", "A dog"),
        ("Option 1: A dog\nOption 2: A cat", "A dog"),
        ('1. "A dog"', "A dog"),
        ("2 dogs", "2 dogs"),
        ("1.5 m of snow", "1.5 m of snow"),
        ("```text\nA dog\n```", "A dog"),
        ("A dog\u2028on a mat", "A dog on a mat"),
        ("A dog\x85on a mat\r\nmore", "A dog on a mat"),
    ],
)
def test_answers_are_cleaned(answer: str, text: str | None) -> None:
    for name in ("paraphrase_1", "paraphrase_semclip", "query_paraphrase"):
        assert find_task(name).parse(answer) == text


@pytest.mark.parametrize("name", ["difference", "difference_cub", "class_difference", "class_description"])
def test_longer_answers_end_where_the_model_goes_on_to_something_else(name: str) -> None:
    assert find_task(name).parse(" The dog is\nlarger. Q: What is") == "The dog is larger."


@pytest.mark.parametrize("name", NAMES)
@given(answer=st.text())
def test_parsing_never_raises_never_gives_empty_text_and_never_reads_thoughts(name: str, answer: str) -> None:
    parsed = find_task(name).parse(answer)
    assert parsed is None or parsed.strip()
    assert find_task(name).parse(f'<think>"Yes", a dog.</think>{answer}') == parsed


def test_unknown_task_is_named() -> None:
    with pytest.raises(InputError, match=r"synthesize\.tasks has 'summarise' is unknown"):
        find_task("summarise")
