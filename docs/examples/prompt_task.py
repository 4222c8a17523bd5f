"""Ask any prompt task's question about three drawn scenes, and see what its parser makes of an answer.

    python docs/examples/prompt_task.py paraphrase_1             # without a name: which tasks there are
    python docs/examples/prompt_task.py paraphrase_1 --ask       # SmolLM2-135M answers, with ParaCLIP's adapter

A prompt task declares its source texts, the question, and how an answer is read: as text, or None.
"""

import random
import sys

from components.captions.generating.engines import Engine, make_engine
from components.captions.prompting.request import Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.settings import load_settings
from components.core.system.discovery import names_in
from components.data.world.alt_text import alt_text
from components.data.world.scenes import draw_scenes

SAMPLING = Sampling(temperature=0.0, top_p=1.0, max_tokens=40)


def questions(name: str, model: str) -> list[Request]:
    """The task's question about each of three scenes; each of its inputs is the alt-text of one."""
    task, rng = find_task(name), random.Random(0)
    scenes = [scene for _, scene in draw_scenes(0, {"train": 3, "val": 0, "test": 0})]
    asked = []
    for scene in scenes:
        inputs = {text: alt_text(scene, rng, 0.0) for text in task.inputs}
        if reason := task.accepts(inputs):
            print(f"not asked: {reason}")
            continue
        chat = tuple((message["role"], message["content"]) for message in task.render(inputs, "own"))
        asked.append(Request(name, chat, model, SAMPLING, attempt=0, parse=task.parse))
    return asked


def main(name: str, engine: Engine | None = None) -> list[str | None]:
    """Print the questions and, where an engine answers them, its answers as the task reads them."""
    task, read = find_task(name), list[str | None]()
    print(f"{task.citation}\nasks about {', '.join(task.inputs)}; answers are {', '.join(task.outputs) or 'a verdict'}")
    asked = questions(name, engine.model if engine else "nobody")
    for request in asked:
        print(f"\n{request.chat[-1][1]}")
    for replies in engine.answer(asked) if engine else ():
        for reply in replies:
            read.append(task.parse(reply.answer or ""))
            print(f"\nanswer: {reply.answer}\nread as: {read[-1]}")
    return read


if __name__ == "__main__":
    if not sys.argv[1:]:
        print(*names_in("components.captions.prompting.tasks"), sep="\n")
    elif "--ask" in sys.argv:
        block = load_settings().synthesize
        main(sys.argv[1], make_engine(block, block.default_llm))
    else:
        main(sys.argv[1])
