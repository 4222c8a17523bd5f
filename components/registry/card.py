"""Writes the model card: known weaknesses, licences, metrics, training data, prompts, settings and origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from components.core.settings import Settings
from components.core.system.errors import InputError
from components.data.leaks.report import FOLDER as LEAKS
from components.data.leaks.report import read_counts
from components.encoders.adapter.sidecar import SIDECAR, Sidecar, read_sidecar
from components.evaluation.scoring.result_table import least_text
from components.evaluation.scoring.results import DEFAULT, Report, Result
from components.registry.decision import BASE, Decision
from components.registry.evidence import read_summary, tables_trained_on
from components.registry.gate import Judged, gain_of
from components.registry.reviews import read_reviewed
from components.training.methods.registry import find_method

_NOT_STATED = "Not stated: describe dataset '{dataset}' in `promote.card` of params.yaml."


@dataclass(frozen=True)
class CardSubject:
    """A promoted candidate.

    Attributes:
        judged: the candidate's results.
        incumbent: the results that it was judged against, on the same data.
        tags: the version's tags with commit, dvc.lock and data.
    """

    decision: Decision
    sidecar: Sidecar
    judged: Judged
    incumbent: Judged
    tags: Mapping[str, str]

    @property
    def candidate(self) -> Report:
        """The candidate's results."""
        return self.judged.report


def model_card(subject: CardSubject, settings: Settings) -> str:
    """The card as Markdown; the shortest and most important parts come first, because the registry may truncate it."""
    sidecar, decision = subject.sidecar, subject.decision
    rules = [f"- {rule.name}: {rule.reason}" for rule in decision.rules]
    parts = [
        f"# {decision.model}: {sidecar.name}",
        f"Text and image encoder {sidecar.model}, {sidecar.embed_dim} dimensions, up to {sidecar.context_length} "
        f"tokens, fine-tuned with {_method(sidecar)}. World '{settings.dataset.name}', {decision.time[:10]}.",
        "## Known weaknesses\n\n" + _weaknesses(subject, settings),
        "## Licences\n\n" + _stated(settings, settings.promote.card.licences),
        "## Metrics\n\n"
        + _test_queries(subject, settings)
        + _shown(subject, settings.promote.metric)
        + _metrics(subject.candidate, subject.incumbent.report),
        "## Training data\n\n" + _data(sidecar, settings),
        "## Prompts\n\n" + _prompts(sidecar),
        "## Settings\n\n" + f"`{json.dumps(sidecar.settings, sort_keys=True)}`",
        "## Origin\n\n" + _origin(subject),
        "## Decision\n\n" + "\n".join(rules + [f"- looks at these test data: {decision.look}"] * bool(decision.look)),
    ]
    return "\n\n".join(parts) + "\n"


def _shown(subject: CardSubject, primary: str) -> str:
    """Which differences the test set can show; empty without values per query."""
    change = gain_of(subject.judged, subject.incumbent, primary)
    return "" if change is None else f"The test set shows {least_text(change.interval().least)} of {primary}.\n\n"


def _method(sidecar: Sidecar) -> str:
    try:
        return f"{sidecar.method} ({find_method(sidecar.method).citation})"
    except InputError:
        return sidecar.method


def _stated(settings: Settings, lines: tuple[str, ...]) -> str:
    """The statements of `promote.card` about this world's encoders, as a list."""
    if settings.dataset.name not in settings.promote.card.datasets or not lines:
        return _NOT_STATED.format(dataset=settings.dataset.name)
    return "\n".join(f"- {line}" for line in lines)


def _image_tower(sidecar: Sidecar) -> list[str]:
    """Whether the base's image embeddings fit the encoder, by the hash of its weights; empty if the base is missing."""
    base = DEFAULT.models / BASE
    if not (base / SIDECAR).exists():
        return []
    if read_sidecar(base).image_tower_sha256 == sidecar.image_tower_sha256:
        return ["- Its image tower is the base's, unchanged: no text can retrieve details that it does not represent."]
    return ["- Its image tower is not the base's: image embeddings of the base do not fit it."]


def _weaknesses(subject: CardSubject, settings: Settings) -> str:
    against = subject.incumbent.report
    lines = [_stated(settings, settings.promote.card.weaknesses), *_image_tower(subject.sidecar)]
    overall = {name: result for name, result in subject.candidate.metrics.items() if name.count("/") == 1}
    for name, new in overall.items():
        old = against.metrics.get(name)
        change = None if old is None else gain_of(subject.judged, subject.incumbent, name)
        if old is not None and change is not None and change.value < 0:
            sure = ", and not by chance" if change.interval().excludes_zero else ""
            lines.append(f"- Worse than {against.encoder} at {name}: {old.value:.4f} -> {new.value:.4f}{sure}.")
    groups = {name: result for name, result in subject.candidate.metrics.items() if name not in overall}
    primary = {name: result for name, result in groups.items() if name.startswith(f"{settings.promote.metric}/")}
    if primary:
        worst = min(primary, key=lambda name: primary[name].value * (1 if primary[name].higher_is_better else -1))
        lines.append(f"- Weakest group of the primary metric: {worst} = {primary[worst].value:.4f}.")
    return "\n".join(lines)


def _test_queries(subject: CardSubject, settings: Settings) -> str:
    """The model that wrote the test queries, and the share that people found right; empty without written queries."""
    about = subject.candidate.test_queries
    if not about:
        return ""
    found = read_reviewed(settings.synthesize.store)
    reviewed = f"{found}" if found is not None and found.read else "no sample of them was reviewed"
    return f"{about[:1].upper()}{about[1:]}; {reviewed}.\n\n"


def _metrics(candidate: Report, incumbent: Report) -> str:
    lines = [f"| metric | {candidate.encoder} | {incumbent.encoder} | better |", "|---|---|---|---|"]
    for name, new in candidate.metrics.items():
        old = incumbent.metrics.get(name)
        better = "higher" if new.higher_is_better else "lower"
        lines.append(f"| {name} | {_interval(new)} | {_interval(old) if old else ''} | {better} |")
    about = f"95% intervals over queries; evaluation data `{candidate.data_hash}`, {candidate.protocol}."
    return about + "\n\n" + "\n".join(lines)


def _interval(result: Result) -> str:
    low, high = result.span
    return f"{result.value:.4f} [{low:.4f}, {high:.4f}]"


def _data(sidecar: Sidecar, settings: Settings) -> str:
    card = settings.promote.card
    lines = [_stated(settings, (card.data,) if card.data else ())]
    lines += [f"- `{path}`, SHA-256 `{digest}`" for path, digest in sidecar.data_hashes.items()]
    if (leaks := read_counts(LEAKS)) is not None:
        lines.append(f"- Published test sets: {leaks.summary}.")
    for table in tables_trained_on(sidecar.data_hashes):
        if summary := read_summary(table):
            lines.append(
                f"- Table `{table}`: {summary.get('accepted')} of {summary.get('rows')} rows passed validation."
            )
    return "\n".join(lines)


def _prompts(sidecar: Sidecar) -> str:
    lines = []
    for table in tables_trained_on(sidecar.data_hashes):
        prompts = read_summary(table).get("prompts")
        if prompts is None:
            lines.append(f"- Table `{table}` was validated without recording its prompts: run `dvc repro`.")
        lines += [
            "- **{task}** ({citation}), answered by {model}: {prompt}".format(**prompt) for prompt in prompts or ()
        ]
    return "\n".join(lines) or "No training caption was written by a language model."


def _origin(subject: CardSubject) -> str:
    tags = subject.tags
    dirty = ", with uncommitted changes" if tags.get("git_dirty") == "true" else ""
    lines = [
        f"- weights: SHA-256 `{subject.candidate.encoder_sha256}`",
        f"- training run: `{subject.decision.run_id}`",
        f"- git commit: `{tags.get('git_commit', '')}`{dirty}",
        f"- dvc.lock: SHA-256 `{tags.get('dvc_lock_sha256') or 'none'}`",
    ]
    if parity := subject.sidecar.parity:
        lines.append(
            f"- base: features of the base differ from open_clip's own by at most {parity.texts:.0e} for 100 texts and "
            f"{parity.images:.0e} for 20 pictures"
        )
    return "\n".join(lines)
