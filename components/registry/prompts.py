"""Finds the prompts behind an encoder's training tables, for its model card."""

from __future__ import annotations

from components.captions.tasks import find_task
from components.core.settings import Settings
from components.validation.tables import find_table


def prompts_of(table: str, settings: Settings) -> list[str]:
    """One Markdown item for each question that the table's captions answer: who was asked, and what."""
    found = find_table(table)
    judged = settings.validation.limits(table).judged
    names = []
    for answer in found.answers:
        candidate = find_task(answer.task).judges
        names += [name for name in (candidate, answer.task if judged or not candidate else None) if name]
    return [_prompt(name, settings) for name in names]


def _prompt(name: str, settings: Settings) -> str:
    task = find_task(name)
    asked = settings.synthesize.tasks.get(name)
    messages = task.render({part: f"<{part}>" for part in task.inputs}, asked.prompt if asked else "own")
    question = " / ".join(" ".join(str(message["content"]).split()) for message in messages)
    who = "not in params.yaml any more"
    if asked is not None:
        model = settings.synthesize.model_of(asked)
        engine = settings.synthesize.models.get(model, {})
        source = engine.get("model") or engine.get("adapter") or engine.get("engine", "unknown")
        who = f"{model} ({source}), temperature {asked.temperature:g}, top-p {asked.top_p:g}"
    return f"- **{name}** ({task.citation}), asked of {who}: {question}"
