"""Put the best candidate through the gate; move the aliases; write the decision down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from components.encoders.sidecar import Sidecar, read_sidecar
from components.errors import InputError
from components.evaluation.folders import DEFAULT as EVALUATION
from components.evaluation.results import Report, read_report
from components.files import file_hash
from components.registry import decision as records
from components.registry import model as versions
from components.registry.decision import Decision
from components.registry.evidence import gather, training_run
from components.registry.folders import BASE, DEFAULT, Folders
from components.registry.gate import judge, metric
from components.registry.standing import fingerprint
from components.settings import Settings
from components.tracking import make_client, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient


def promote(settings: Settings, dry_run: bool = False, folders: Folders = DEFAULT) -> Decision:
    """Judge the best candidate and, when it passes, make it champion; the old champion becomes `previous`.

    A version is registered only for a candidate that passes; weights that have a version keep it. Every
    decision is written to `reports/promotion/` and into the candidate's training run. Proposing the
    champion's own weights again changes and writes nothing, and neither does a dry run.

    Raises:
        InputError: results are missing, or the policy names a metric that they lack.
    """
    policy = settings.promote
    candidate = best_candidate(settings, folders)
    sidecar = read_sidecar(folders.models / candidate.encoder)
    client = make_client()
    champion = versions.find_alias(client, policy.model, versions.CHAMPION)
    decision = _undecided(settings, candidate, sidecar, champion, folders)
    if champion is not None and champion.tags.get(versions.SHA_TAG) == candidate.encoder_sha256:
        return decision.model_copy(update={"outcome": "already champion", "version": str(champion.version)})
    incumbent = _incumbent(client, champion, candidate, settings, folders)
    evidence = gather(client, policy.model, candidate, sidecar, folders)
    decision = decision.model_copy(update={"rules": judge(candidate, incumbent, policy, evidence)})
    passed = all(rule.passed for rule in decision.rules)
    decision = decision.model_copy(update={"outcome": "promoted" if passed else "refused"})
    if dry_run:
        return decision
    if passed:
        decision = _crown(client, decision, champion, settings, folders)
    _write_down(client, decision, folders)
    return decision


def best_candidate(settings: Settings, folders: Folders = DEFAULT) -> Report:
    """The results of the encoder, base aside, that is best on the primary metric.

    Raises:
        InputError: no other encoder is listed, or one has no results.
    """
    reports = [read_report(name, folders.metrics) for name in settings.encoders if name != BASE]
    if not reports:
        raise InputError("params.yaml: encoders lists no encoder but base: add one to have a candidate")

    def merit(report: Report) -> float:
        result = metric(report, settings.promote.primary, "promote.primary")
        return result.value if result.higher_is_better else -result.value

    return max(reports, key=merit)


def _undecided(
    settings: Settings, candidate: Report, sidecar: Sidecar, champion: Any | None, folders: Folders
) -> Decision:
    lock = folders.dvc_lock
    return Decision(
        outcome="refused",
        model=settings.promote.model,
        encoder=candidate.encoder,
        encoder_sha256=candidate.encoder_sha256,
        against=BASE if champion is None else f"champion version {champion.version}",
        data_hash=candidate.data_hash,
        protocol=candidate.protocol,
        run_id=training_run(folders.models / candidate.encoder),
        git_commit=sidecar.git_commit,
        dvc_lock_sha256=file_hash(lock) if lock.is_file() else "",
        previous_version="" if champion is None else str(champion.version),
        tracking_uri=tracking_uri(),
        fingerprint=fingerprint(settings, folders),
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
        report = Report.model_validate_json(stored.read_text("utf-8"))
        if (report.data_hash, report.protocol) != (candidate.data_hash, candidate.protocol):
            from components.evaluation.evaluate import run as evaluate

            encoder = versions.artifact(client, champion, "encoder", place / "models")
            report = evaluate(
                settings, encoder.name, replace(EVALUATION, models=encoder.parent, reports=place / "reports")
            )
    return report.model_copy(update={"encoder": f"champion version {champion.version}"})


def _crown(
    client: MlflowClient, decision: Decision, champion: Any | None, settings: Settings, folders: Folders
) -> Decision:
    """Register the candidate's weights unless they are, and move the aliases, `champion` last."""
    tags = {
        versions.SHA_TAG: decision.encoder_sha256,
        "encoder": decision.encoder,
        "world": settings.world.name,
        "run_id": decision.run_id,
        "git_commit": decision.git_commit,
        "data_hash": decision.data_hash,
        "dvc_lock_sha256": decision.dvc_lock_sha256,
    }
    known = versions.find_weights(client, decision.model, decision.encoder_sha256)
    encoder, metrics = folders.models / decision.encoder, folders.metrics / f"{decision.encoder}.json"
    version = (
        str(known.version)
        if known is not None
        else versions.register(client, decision.model, encoder, metrics, run_id=decision.run_id, tags=tags)
    )
    for rule in decision.rules:
        client.set_model_version_tag(decision.model, version, f"rule.{rule.name}".replace(" ", "_"), rule.reason)
    client.set_tag(decision.run_id, "model_version", f"{decision.model}/{version}")
    if champion is not None:
        client.set_registered_model_alias(decision.model, versions.PREVIOUS, champion.version)
    client.set_registered_model_alias(decision.model, versions.CHAMPION, version)
    return decision.model_copy(update={"version": version})


def _write_down(client: MlflowClient, decision: Decision, folders: Folders) -> None:
    from mlflow.exceptions import MlflowException

    record = records.save(decision, folders.records)
    try:
        client.log_artifact(decision.run_id, str(record), "promotion")
        client.set_tag(decision.run_id, "promotion", decision.outcome)
    except MlflowException:
        # A run that MLflow does not know is a reason of the refusal itself; the record on disk is kept.
        return
