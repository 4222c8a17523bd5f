"""Promotes the best candidate that passes the gate and records the decision: `cliptune promote`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from components.core.settings import Settings
from components.core.system.checking import check_once
from components.core.system.errors import InputError, shown_address
from components.core.tables import formats
from components.core.tables.files import content_hash
from components.core.tables.formats import read_record
from components.core.tracking import RUN_FILE, explained, make_client, offline_spool, tracking_uri, training_run
from components.encoders.adapter.sidecar import Sidecar, read_sidecar
from components.evaluation.scoring.results import DEFAULT, Report, read_report, read_scores
from components.registry import decision as records
from components.registry import model as versions
from components.registry.champion import (
    BusyError,
    check_champion,
    files_of,
    finish_killed,
    has_files,
    make_champion,
    promotion_lock,
    record_unchanged,
)
from components.registry.decision import BASE, Decision, Outcome, RuleVerdict
from components.registry.evidence import gather, lock_hash, tags_of
from components.registry.gate import Judged, errors_needed, judge, metric
from components.registry.refusal import cause, numbers_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOOKS, _SHORT = "looks.", 12
"""Start of a registered model's tags, followed by that of the test data's hash: hashes of judged encoders."""


@explained()
def promote(settings: Settings, dry_run: bool = False, *, challenger: bool = False) -> Decision:
    """Make the best candidate that passes the gate champion; the old champion becomes `previous`.

    A version is registered only for a candidate that passes; weights that already have a version reuse it. Every
    decision is written to `reports/promotion/` and into the candidate's training run, except in a dry run and for a
    candidate that is champion already. Of two simultaneous promotions one is refused and writes nothing.
    A promotion or rollback that was killed is finished first.

    Args:
        challenger: a candidate that passes becomes only `challenger`, so that people can try it first.
    """
    candidates, unscored = _candidates(settings)
    reports = [one.report for one in candidates]
    client = make_client()
    finished = None
    if not dry_run:
        offline_spool.send(client)
        finished = finish_killed(client, settings.promote.model)
    check_champion(client, settings.promote.model, reports, dry_run)
    champion = versions.find_alias(client, settings.promote.model, versions.CHAMPION)
    # Of the state that is judged: a `dvc repro` beside it may write another.
    lock = lock_hash()
    cases = _judged(client, champion, candidates, settings, count=not dry_run)
    case = cases[0] if cases[-1].outcome == "refused" else cases[-1]
    decision = Decision(
        outcome="challenger" if challenger and case.outcome == "promoted" else case.outcome,
        model=settings.promote.model,
        encoder=case.candidate.encoder,
        encoder_sha256=case.candidate.encoder_sha256,
        against=BASE if champion is None else f"champion version {champion.version}",
        rules=case.rules,
        passed_over=(*(_why_refused(other) for other in cases if other is not case), *unscored),
        behind=tuple(_why_behind(other, case.candidate, settings) for other in reports[len(cases) :]),
        advice=_advice(case, settings),
        data_hash=case.candidate.data_hash,
        protocol=case.candidate.protocol,
        look=case.bar.look,
        run_id=training_run(DEFAULT.models / case.candidate.encoder),
        git_commit="" if case.sidecar is None else case.sidecar.git_commit,
        dvc_lock_sha256=lock,
        version=str(champion.version) if champion is not None and case.outcome == "already champion" else "",
        previous_version="" if champion is None else str(champion.version),
        tracking_uri=shown_address(tracking_uri()),
        time=records.now(),
    )
    if decision.outcome == "already champion":
        return finished if finished is not None and finished.version == decision.version else decision
    if dry_run:
        return decision
    if decision.outcome == "refused":
        return record_unchanged(client, decision)
    return _admit(client, case, decision, settings)


def _candidates(settings: Settings) -> tuple[list[Judged], tuple[RuleVerdict, ...]]:
    """Results of all encoders except base, best on the primary metric first; ties keep their order in params.yaml.

    Also returns the encoders without results, each with the reason: DVC deletes an encoder's results while stage
    `evaluate` scores it again, and the other encoders are judged all the same.
    """
    check_once(settings.compare_encoders, "compare_encoders")
    names = [name for name in settings.compare_encoders if name != BASE]
    if not names:
        raise InputError("params.yaml: compare_encoders lists no encoder but base: add one to have a candidate")
    found: list[Judged] = []
    missing: list[RuleVerdict] = []
    for name in names:
        try:
            found.append(_read_judged(name))
        except InputError as error:
            missing.append(RuleVerdict(name=name, passed=False, reason=str(error)))
    if not found:
        raise InputError(missing[0].reason)

    def merit(one: Judged) -> float:
        result = metric(one.report, settings.promote.metric, "promote.metric")
        value = result.value if result.higher_is_better else -result.value
        return -math.inf if math.isnan(value) else value

    return sorted(found, key=merit, reverse=True), tuple(missing)


def _read_judged(name: str) -> Judged:
    report = read_report(name, DEFAULT.metrics)
    return Judged(report, read_scores(report, DEFAULT.per_query))


@dataclass(frozen=True)
class _Bar:
    """What all candidates on the same test data must beat: `look` of `looks_at`, `errors` of `errors_needed`."""

    incumbent: Judged
    look: int = 0
    errors: float = 0.0


@dataclass(frozen=True)
class _Case:
    """A candidate, the results it must beat, and the gate's verdicts: none for the champion's own weights.

    Without a sidecar the encoder is gone, and the bar is the candidate itself.
    """

    outcome: Outcome
    sidecar: Sidecar | None
    judged: Judged
    bar: _Bar
    rules: tuple[RuleVerdict, ...] = ()

    @property
    def candidate(self) -> Report:
        """The candidate's results."""
        return self.judged.report


def _judged(
    client: MlflowClient, champion: Any | None, candidates: list[Judged], settings: Settings, *, count: bool
) -> list[_Case]:
    """The candidates in their order, up to the first that passes or is champion already.

    A collapsed encoder retrieves the same images for every text and so has the best agreement. The guards refuse it,
    and the next candidate is judged. All candidates on the same test data share a look at it, and its level.
    """
    own = "" if champion is None else champion.tags.get(versions.SHA_TAG, "")
    cases = list[_Case]()

    @cache
    def bar_on(data_hash: str, protocol: str) -> _Bar:
        incumbent = _incumbent(client, champion, settings, data_hash, protocol)
        same = (one for one in candidates if (one.report.data_hash, one.report.protocol) == (data_hash, protocol))
        group = [one for one in same if one.report.encoder_sha256 != own]
        hashes = (one.report.encoder_sha256 for one in (incumbent, *group))
        look = _looks_at(client, settings.promote.model, data_hash, hashes, count)
        return _Bar(incumbent, look, errors_needed(group, incumbent, settings.promote.metric, look))

    for judged in candidates:
        report = judged.report
        try:
            sidecar = read_sidecar(DEFAULT.models / report.encoder)
        except InputError as error:
            # For instance while it is trained again; the other candidates are judged all the same.
            gone = RuleVerdict(name="provenance", passed=False, reason=str(error))
            cases.append(_Case("refused", None, judged, _Bar(judged), (gone,)))
            continue
        if own == report.encoder_sha256:
            return [*cases, _Case("already champion", sidecar, judged, _Bar(judged))]
        bar = bar_on(report.data_hash, report.protocol)
        evidence = gather(client, settings, report, bar.incumbent.report, sidecar)
        rules = judge(judged, bar.incumbent, settings.promote, evidence, bar.errors)
        passed = all(rule.passed for rule in rules)
        cases.append(_Case("promoted" if passed else "refused", sidecar, judged, bar, rules))
        if passed:
            break
    return cases


def _why_refused(case: _Case) -> RuleVerdict:
    broken = next(rule for rule in case.rules if not rule.passed)
    return RuleVerdict(name=case.candidate.encoder, passed=False, reason=f"{broken.name}: {broken.reason}")


def _why_behind(candidate: Report, better: Report, settings: Settings) -> RuleVerdict:
    primary = settings.promote.metric
    value, better_value = (metric(report, primary, "promote.metric").value for report in (candidate, better))
    return RuleVerdict(
        name=candidate.encoder, passed=False, reason=f"{primary} {value:.4f}, {better.encoder} has {better_value:.4f}"
    )


def _advice(case: _Case, settings: Settings) -> str:
    """The cause of a refusal by the metrics; empty for one by missing evidence."""
    policy = settings.promote
    judged_by = {policy.metric, *(f"guard {name}" for name in policy.guards)}
    if case.sidecar is None or not any(rule.name in judged_by and not rule.passed for rule in case.rules):
        return ""
    return cause(numbers_of(case.judged, case.bar.incumbent, case.sidecar, policy, case.bar.errors))


def _incumbent(client: MlflowClient, champion: Any | None, settings: Settings, data_hash: str, protocol: str) -> Judged:
    """Results to beat on this evaluation data and protocol.

    A champion with other results, or without values per query, is scored again.
    """
    if champion is None:
        return _read_judged(BASE)
    with TemporaryDirectory() as temporary:
        place = Path(temporary)
        found = _stored(client, champion, place)
        if found is None or (found.report.data_hash, found.report.protocol) != (data_hash, protocol):
            from components.evaluation.scoring.evaluate import run as evaluate

            encoder = versions.artifact(client, champion, "encoder", place / "models")
            # Without this file nothing is logged: the champion's run keeps the metrics that it was promoted by.
            (encoder / RUN_FILE).unlink(missing_ok=True)
            folders = replace(DEFAULT, models=encoder.parent, reports=place / "reports")
            report = evaluate(settings, encoder.name, folders)
            found = Judged(report, read_scores(report, folders.per_query))
    report = found.report.model_copy(update={"encoder": f"champion version {champion.version}"})
    return replace(found, report=report)


def _stored(client: MlflowClient, champion: Any, place: Path) -> Judged | None:
    """The results of a version; None where its values per query are missing, as in versions of earlier releases."""
    stored = versions.artifact(client, champion, versions.METRICS, place)
    report = read_record(Report, stored, "run this again", newest=formats.RESULTS)
    try:
        values = versions.artifact(client, champion, versions.VALUES, place)
    except InputError:
        return None
    values.rename(values.with_name(f"{report.encoder}.safetensors"))
    return Judged(report, read_scores(report, values.parent))


def _admit(client: MlflowClient, case: _Case, decision: Decision, settings: Settings) -> Decision:
    """Register the candidate and move the aliases, unless another promotion does or did the same."""
    try:
        with promotion_lock(decision.model):
            _check_champion(client, decision)
            admitted = decision.model_copy(update={"version": _registered(client, case, decision, settings)})
            # Registering takes minutes, in which another machine may have promoted.
            _check_champion(client, decision)
            if decision.outcome == "promoted":
                make_champion(client, admitted)
                return admitted
            client.set_registered_model_alias(decision.model, versions.CHALLENGER, admitted.version)
            return record_unchanged(client, admitted)
    except BusyError as error:
        # Not written: the last record is that of the promotion that won.
        alone = RuleVerdict(name="alone", passed=False, reason=str(error))
        return decision.model_copy(update={"outcome": "refused", "rules": (*decision.rules, alone)})


def _check_champion(client: MlflowClient, decision: Decision) -> None:
    """Raise BusyError if another version is champion now than the candidate was judged against."""
    champion = versions.find_alias(client, decision.model, versions.CHAMPION)
    now = "" if champion is None else str(champion.version)
    if now != decision.previous_version:
        raise BusyError(
            f"another promotion or rollback has just made {f'version {now}' if now else 'no version'} of "
            f"{decision.model} champion: run the command again"
        )


def _registered(client: MlflowClient, case: _Case, decision: Decision, settings: Settings) -> str:
    """The version with the candidate's weights, created if needed, with tags that lead to its origin."""
    assert case.sidecar is not None
    origin = tags_of(case.sidecar)
    tags = {
        **origin,
        versions.SHA_TAG: decision.encoder_sha256,
        "encoder": decision.encoder,
        "world": settings.dataset.name,
        "run_id": decision.run_id,
        "data_hash": decision.data_hash,
    }
    tags |= {f"rule.{rule.name}".replace(" ", "_"): rule.reason for rule in decision.rules}
    registered = versions.find_weights(client, decision.model, decision.encoder_sha256)
    if registered is not None and has_files(client, registered):
        version = str(registered.version)
        for name, value in tags.items():
            client.set_model_version_tag(decision.model, version, name, value)
    else:
        # Imports PyTorch, which a refusal does not need.
        from components.registry.card import CardSubject, model_card

        subject = CardSubject(decision, case.sidecar, case.judged, case.bar.incumbent, origin)
        parts = files_of(decision.encoder, model_card(subject, settings))
        version = versions.register(client, decision.model, parts, run_id=decision.run_id, tags=tags)
    client.set_tag(decision.run_id, "model_version", f"{decision.model}/{version}")
    client.set_tag(decision.run_id, "dvc_lock_sha256", origin["dvc_lock_sha256"])
    return version


def _looks_at(client: MlflowClient, model: str, data_hash: str, judged: Iterable[str], count: bool) -> int:
    """How often test data have judged candidates, with this look: at each an encoder without a gain could pass.

    The same candidates against the same champion add none.

    Args:
        judged: hashes of the weights of all candidates and of the encoder that they must beat.
        count: keep it, with the registered model, which is made where there is none.
    """
    tag, this = _LOOKS + data_hash[:_SHORT], content_hash(*sorted(judged))[:_SHORT]
    known = [*filter(None, versions.tags_of_model(client, model).get(tag, "").split(" "))]
    if this in known:
        return known.index(this) + 1
    if count:
        versions.create_model(client, model)
        client.set_registered_model_tag(model, tag, " ".join([*known, this]))
    return len(known) + 1
