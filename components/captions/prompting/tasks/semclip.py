"""SemCLIP's paraphrases and its negations, of which nothing is true any more, each for a judge to accept or reject."""

from __future__ import annotations

from textwrap import indent

from components.captions.prompting.parsing import verdict
from components.captions.prompting.readers import read_answers, read_captions
from components.captions.prompting.request import Inputs
from components.captions.prompting.task import PromptTask, chat, question_alone


def _generator(
    name: str,
    system: str,
    instruction: str,
    output: str,
    answers_repeat: tuple[str, ...] = (),
    keeps_meaning: bool = False,
) -> PromptTask:
    """A task that rewrites a caption for a judge; the caption follows the instruction."""
    return PromptTask(
        name=name,
        citation="SemCLIP (arXiv 2511.16527), appendix A",
        inputs=("caption",),
        reads=read_captions,
        messages=lambda inputs: chat(system, f"{instruction} {inputs['caption']}"),
        published=lambda inputs: question_alone(f"{instruction}\n{inputs['caption']}"),
        outputs=(output,),
        keeps_meaning=keeps_meaning,
        answers_repeat=answers_repeat,
    )


def _judge(name: str, judges: str, answer: str, called: str, question: str) -> PromptTask:
    """The judge of the task `judges`, whose answers are the input `answer`, named `called` in the question."""

    def ask(inputs: Inputs) -> str:
        return (
            f'The original sentence is: "{inputs["caption"]}"\n'
            f'The generated {called} is: "{inputs[answer]}"\n'
            f'{question} Respond with "Yes" or "No".'
        )

    return PromptTask(
        name=name,
        citation="SemCLIP (arXiv 2511.16527), appendix A; how verdicts are read is its released code's",
        inputs=("caption", answer),
        reads=read_answers(answer, caption="source"),
        messages=lambda inputs: chat("You judge captions.", ask(inputs)),
        parse=verdict,
        published=lambda inputs: question_alone(f"\n{indent(ask(inputs), '    ')}\n    "),
        outputs=("verdict",),
        judges=judges,
    )


TASKS = (
    _generator(
        name="paraphrase_semclip",
        system="You rewrite captions.",
        instruction="Rephrase the following sentence with the same meaning:",
        output="paraphrase",
        answers_repeat=("with the same",),
        keeps_meaning=True,
    ),
    _judge(
        name="judge_paraphrase",
        judges="paraphrase_semclip",
        answer="paraphrase",
        called="paraphrase",
        question="Does the paraphrase accurately retain the meaning of the original?",
    ),
    _generator(
        name="negate_semclip",
        system="You write captions that are false.",
        instruction="Generate a completely false version of this sentence:",
        output="negation",
    ),
    _judge(
        name="judge_negation",
        judges="negate_semclip",
        answer="negation",
        called="false sentence",
        question="Does the false sentence contradict or misrepresent the original?",
    ),
)
