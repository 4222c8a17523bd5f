"""Promotes the best candidate that passes the gate, and records the decision; behind `cliptune promote`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from components.core.errors import InputError
from components.core.record_files import read_record
from components.core.settings import Settings
from components.encoders.adapter.sidecar import Sidecar, read_sidecar
from components.evaluation.results import DEFAULT as EVALUATION
from components.evaluation.results import Report, read_report
from components.registry import decision as records
from components.registry import lineage, locks
from components.registry import model as versions
from components.registry.candidates import candidates
from components.registry.champion import finish_killed, make_champion, write_down
from components.registry.decision import Decision, Rule
from components.registry.evidence import gather
from components.registry.folders import BASE, DEFAULT, Folders
from components.registry.gate import judge, metric
from components.registry.webhook import check_webhook
from components.tracking import (
    RUN_FILE,
    explained,
    make_client,
    offline_spool,
    shown_address,
    tracking_uri,
    training_run,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient


@explained()
def promote(
    settings: Settings, dry_run: bool = False, folders: Folders = DEFAULT, *, challenger: bool = False
) -> Decision:
    """Make the best candidate that passes the gate champion; the old champion becomes `previous`.

    A version is registered only for a candidate that passes; weights that have a version keep it. Every
    decision is written to `reports/promotion/` and into the candidate's training run. Proposing the
    champion's own weights again changes and writes nothing, and neither does a dry run. Of two promotions at
    once one is refused and writes nothing, because it judged against a former champion or has to wait; `locks` says
    what an MLflow server leaves open. What a killed promotion or rollback left undone is done first.

    Args:
        challenger: a candidate that passes becomes `challenger` only, for people to try before they let it win.

    Raises:
        InputError: results are missing, the policy names a metric that they lack, or MLflow gives no answer.
    """
    asking, unscored = candidates(settings, folders)
    check_webhook(settings.promote)
    client = make_client()
    finished = None
    if not dry_run:
        offline_spool.send(client)
        finished = finish_killed(client, settings, folders)
    case = _first_to_pass(client, asking, settings, folders)
    decision = case.decision.model_copy(update={"passed_over": (*case.decision.passed_over, *unscored)})
    if decision.outcome == "already champion":
        own = finished is not None and finished.version == decision.version
        return finished if finished is not None and own else decision
    if challenger and decision.outcome == "promoted":
        decision = decision.model_copy(update={"outcome": "challenger"})
    if dry_run:
        return decision
    if decision.outcome != "refused":
        return _admit(client, replace(case, decision=decision), settings, folders)
    return write_down(client, decision, folders)


@dataclass(frozen=True)
class _Case:
    """A candidate, what it has to beat, and what the gate says."""

    decision: Decision
    sidecar: Sidecar | None
    candidate: Report
    incumbent: Report


def _first_to_pass(client: MlflowClient, asking: list[Report], settings: Settings, folders: Folders) -> _Case:
    """The best candidate that passes or is champion already; the best of all when none does.

    A collapsed encoder gives every text the same images and so leads at agreement; the guards keep it out, and the
    next one is asked.
    """
    champion = versions.find_alias(client, settings.promote.model, versions.CHAMPION)
    refused: list[_Case] = []
    # A champion that was scored on other data is scored again once, however many candidates ask.
    incumbents: dict[tuple[str, str], Report] = {}
    for place, candidate in enumerate(asking):
        case = _judged(client, champion, candidate, incumbents, settings, folders)
        if case.decision.outcome != "refused":
            over = tuple(_why_refused(one.decision) for one in refused)
            behind = tuple(_why_behind(one, candidate, settings) for one in asking[place + 1 :])
            return replace(case, decision=case.decision.model_copy(update={"passed_over": over, "behind": behind}))
        refused.append(case)
    others = tuple(_why_refused(one.decision) for one in refused[1:])
    return replace(refused[0], decision=refused[0].decision.model_copy(update={"passed_over": others}))


def _why_refused(decision: Decision) -> Rule:
    broken = next(rule for rule in decision.rules if not rule.passed)
    return Rule(name=decision.encoder, passed=False, reason=f"{broken.name}: {broken.reason}")


def _why_behind(candidate: Report, better: Report, settings: Settings) -> Rule:
    primary = settings.promote.primary
    own, other = (metric(report, primary, "promote.primary").value for report in (candidate, better))
    return Rule(name=candidate.encoder, passed=False, reason=f"{primary} {own:.4f}, {better.encoder} has {other:.4f}")


def _judged(
    client: MlflowClient,
    champion: Any | None,
    candidate: Report,
    incumbents: dict[tuple[str, str], Report],
    settings: Settings,
    folders: Folders,
) -> _Case:
    decision = _undecided(settings, candidate, champion, folders)
    try:
        sidecar = read_sidecar(folders.models / candidate.encoder)
    except InputError as error:
        # As while it is trained again, which keeps no other candidate from being judged.
        gone = Rule(name="provenance", passed=False, reason=str(error))
        return _Case(decision.model_copy(update={"rules": (gone,)}), None, candidate, candidate)
    decision = decision.model_copy(update={"git_commit": sidecar.git_commit})
    if champion is not None and champion.tags.get(versions.SHA_TAG) == candidate.encoder_sha256:
        already = decision.model_copy(update={"outcome": "already champion", "version": str(champion.version)})
        return _Case(already, sidecar, candidate, candidate)
    data = (candidate.data_hash, candidate.protocol)
    if data not in incumbents:
        incumbents[data] = _incumbent(client, champion, candidate, settings, folders)
    incumbent = incumbents[data]
    evidence = gather(client, settings, candidate, incumbent, sidecar, folders)
    rules = judge(candidate, incumbent, settings.promote, evidence)
    outcome = "promoted" if all(rule.passed for rule in rules) else "refused"
    return _Case(decision.model_copy(update={"rules": rules, "outcome": outcome}), sidecar, candidate, incumbent)


def _undecided(settings: Settings, candidate: Report, champion: Any | None, folders: Folders) -> Decision:
    return Decision(
        outcome="refused",
        model=settings.promote.model,
        encoder=candidate.encoder,
        encoder_sha256=candidate.encoder_sha256,
        against=BASE if champion is None else f"champion version {champion.version}",
        data_hash=candidate.data_hash,
        protocol=candidate.protocol,
        run_id=training_run(folders.models / candidate.encoder),
        dvc_lock_sha256=lineage.lock_hash(folders),
        previous_version="" if champion is None else str(champion.version),
        tracking_uri=shown_address(tracking_uri()),
        time=records.now(),
    )


def _incumbent(
    client: MlflowClient, champion: Any | None, candidate: Report, settings: Settings, folders: Folders
) -> Report:
    """Results to beat, on the candidate's evaluation data; a champion scored on other data is scored again."""
    if champion is None:
        return read_report(BASE, folders.metrics)
    with TemporaryDirectory() as temporary:
        place = Path(temporary)
        stored = versions.artifact(client, champion, "metrics.json", place)
        report = read_record(Report, stored, "delete the champion's alias in MLflow and promote again")
        if (report.data_hash, report.protocol) != (candidate.data_hash, candidate.protocol):
            from components.evaluation.evaluate import run as evaluate

            encoder = versions.artifact(client, champion, "encoder", place / "models")
            # Without it nothing is logged: the champion's run keeps the metrics that it was promoted by.
            (encoder / RUN_FILE).unlink(missing_ok=True)
            report = evaluate(
                settings, encoder.name, replace(EVALUATION, models=encoder.parent, reports=place / "reports")
            )
    if report.encoder_sha256 != champion.tags.get(versions.SHA_TAG):
        raise InputError(
            f"the results of version {champion.version} of {champion.name} are of other weights: delete its alias "
            f"'{versions.CHAMPION}' in MLflow and promote again"
        )
    return report.model_copy(update={"encoder": f"champion version {champion.version}"})


def _admit(client: MlflowClient, case: _Case, settings: Settings, folders: Folders) -> Decision:
    """Register the candidate and move the aliases, unless another promotion does so or did so meanwhile."""
    decision = case.decision
    try:
        with locks.held(decision.model, f"the promotion of '{decision.encoder}'") as lock:
            _champion_judged_against(client, decision)
            admitted = decision.model_copy(update={"version": _registered(client, case, settings, folders)})
            lock.confirm()
            # Registering takes minutes, and not every store has a lock.
            _champion_judged_against(client, decision)
            if decision.outcome == "promoted":
                make_champion(client, admitted, settings, folders)
                return admitted
            client.set_registered_model_alias(decision.model, versions.CHALLENGER, admitted.version)
            return write_down(client, admitted, folders)
    except locks.BusyError as error:
        # Not written: the record of the promotion that won is the last one.
        alone = Rule(name="alone", passed=False, reason=str(error))
        return decision.model_copy(update={"outcome": "refused", "rules": (*decision.rules, alone), "version": ""})


def _champion_judged_against(client: MlflowClient, decision: Decision) -> None:
    """Check that the champion is still the one that the decision was made against.

    Raises:
        BusyError: another is champion now.
    """
    champion = versions.find_alias(client, decision.model, versions.CHAMPION)
    now = "" if champion is None else str(champion.version)
    if now != decision.previous_version:
        raise locks.BusyError(decision.model, f"another promotion, which made version {now} champion meanwhile")


def _registered(client: MlflowClient, case: _Case, settings: Settings, folders: Folders) -> str:
    """The version with the candidate's weights, made if there is none, tied to everything it comes from."""
    assert case.sidecar is not None
    decision, origin = case.decision, lineage.tags_of(case.sidecar, folders)
    tags = {
        **origin,
        versions.SHA_TAG: decision.encoder_sha256,
        "encoder": decision.encoder,
        "world": settings.world.name,
        "run_id": decision.run_id,
        "data_hash": decision.data_hash,
    }
    tags |= {f"rule.{rule.name}".replace(" ", "_"): rule.reason for rule in decision.rules}
    known = versions.find_weights(client, decision.model, decision.encoder_sha256)
    if known is not None:
        version = str(known.version)
        for name, value in tags.items():
            client.set_model_version_tag(decision.model, version, name, value)
    else:
        # It loads PyTorch, which a refusal does without.
        from components.registry.card import Subject, model_card

        subject = Subject(decision, case.sidecar, case.candidate, case.incumbent, origin)
        parts = versions.Parts(
            encoder=folders.models / decision.encoder,
            metrics=folders.metrics / f"{decision.encoder}.json",
            card=model_card(subject, settings, folders),
            dvc_lock=folders.dvc_lock,
        )
        version = versions.register(client, decision.model, parts, run_id=decision.run_id, tags=tags)
    lineage.link_back(client, decision.run_id, decision.model, version, folders)
    return version
