"""The prompts behind a table's captions, for `summary.json` and from there for the model card."""

from __future__ import annotations

from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.validation.rules.table import Synthesised


def prompts_of(table: Synthesised, settings: Settings) -> list[dict[str, str]]:
    """Task, source, model and text of each prompt that the captions of `table` answer."""
    judged = settings.validation.limits(table.name).apply_judge
    names = []
    for answer in table.answers:
        candidate = find_task(answer.task).judges
        names += [name for name in (candidate, answer.task if judged or not candidate else None) if name]
    return [_prompt(name, settings) for name in names]


def _prompt(name: str, settings: Settings) -> dict[str, str]:
    task = find_task(name)
    options = settings.synthesize.tasks.get(name)
    messages = task.render({part: f"<{part}>" for part in task.inputs}, options.prompt if options else "own")
    model = "a model that is no longer in params.yaml"
    if options is not None:
        name_of_model = settings.synthesize.model_of(options)
        engine = settings.synthesize.llms.get(name_of_model, {})
        source = engine.get("model") or engine.get("adapter") or engine.get("engine", "unknown")
        model = f"{name_of_model} ({source}), temperature {options.temperature:g}, top-p {options.top_p:g}"
    text = " / ".join(" ".join(str(message["content"]).split()) for message in messages)
    return {"task": name, "citation": task.citation, "model": model, "prompt": text}
