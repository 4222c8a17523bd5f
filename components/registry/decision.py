"""The record of a promotion decision: its fields, its JSON and Markdown files, and where they are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from components.core.files import atomic_file
from components.core.record_files import read_record, write_record

RECORDS = Path("reports/promotion")
LATEST = "latest"

Outcome = Literal["promoted", "challenger", "refused", "already champion", "rolled back"]


class Rule(BaseModel):
    """One rule's verdict on a candidate, with the reason in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    passed: bool
    reason: str


class Decision(BaseModel):
    """What was decided about an encoder, against what, and why.

    Attributes:
        encoder: the candidate's name.
        against: the champion's version, or `base`.
        passed_over: other candidates that were refused or have no results, by name, each with the reason.
        behind: candidates that do worse on the primary metric and so were not judged, by name, each with its value.
        version: the registry version with the candidate's weights; empty when there is none.
        previous_version: the champion before.
    """

    # Records of earlier versions have a field more.
    model_config = ConfigDict(frozen=True, extra="ignore")

    outcome: Outcome
    model: str
    encoder: str
    encoder_sha256: str
    against: str
    rules: tuple[Rule, ...] = ()
    passed_over: tuple[Rule, ...] = ()
    behind: tuple[Rule, ...] = ()
    data_hash: str = ""
    protocol: str = ""
    run_id: str = ""
    git_commit: str = ""
    dvc_lock_sha256: str = ""
    version: str = ""
    previous_version: str = ""
    tracking_uri: str
    time: str

    @property
    def headline(self) -> str:
        """The decision in one line."""
        refusals = [rule for rule in self.rules if not rule.passed]
        if refusals:
            return f"{self.outcome}: '{self.encoder}' against {self.against}: {refusals[0].name}: {refusals[0].reason}"
        version = f" as version {self.version} of {self.model}" if self.version else ""
        return f"{self.outcome}: '{self.encoder}'{version}"

    def markdown(self) -> str:
        """The record for people."""
        lines = [
            f"# {self.model}: {self.outcome}",
            "",
            f"Candidate **{self.encoder}** (`{self.encoder_sha256[:12]}`) against **{self.against}**, {self.time}.",
            "",
        ]
        if self.rules:
            lines += ["| rule | verdict | reason |", "|---|---|---|"]
            lines += [
                f"| {rule.name} | {'pass' if rule.passed else '**fail**'} | {rule.reason} |" for rule in self.rules
            ]
            lines.append("")
        if self.passed_over:
            lines += ["Passed over:", "", *(f"- **{one.name}**: {one.reason}" for one in self.passed_over), ""]
        if self.behind:
            lines += ["Behind it:", "", *(f"- **{one.name}**: {one.reason}" for one in self.behind), ""]
        facts = {
            "version": self.version,
            "previous champion": self.previous_version,
            "training run": self.run_id,
            "git commit": self.git_commit,
            "dvc.lock": self.dvc_lock_sha256,
            "evaluation data": self.data_hash,
            "protocol": self.protocol,
        }
        lines += [f"- {name}: `{value}`" for name, value in facts.items() if value]
        return "\n".join(lines) + "\n"


def now() -> str:
    """The time of a decision: UTC, to the microsecond, sortable as text."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def save(decision: Decision, folder: Path = RECORDS) -> Path:
    """Write the record under its time, and again as `latest.json` and `latest.md`; returns the first."""
    record = folder / f"{decision.time.replace(':', '')}.json"
    write_record(record, decision)
    with atomic_file(folder / f"{LATEST}.md") as temporary:
        temporary.write_text(decision.markdown(), encoding="utf-8")
    write_record(folder / f"{LATEST}.json", decision)
    return record


def read(path: Path) -> Decision:
    """Read a record.

    Raises:
        InputError: it is missing or damaged.
    """
    return read_record(Decision, path, "run `cliptune promote`", "delete it")


def latest(folder: Path = RECORDS) -> Decision | None:
    """The last decision, if there was one."""
    path = folder / f"{LATEST}.json"
    return read(path) if path.is_file() else None


def history(folder: Path = RECORDS) -> list[Decision]:
    """All decisions, oldest first."""
    return [read(path) for path in sorted(folder.glob("*.json")) if path.stem != LATEST]
