"""The record of a promotion decision, and its JSON and Markdown files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from components.core.tables import formats
from components.core.tables.files import atomic_file
from components.core.tables.formats import read_record, write_record

RECORDS = Path("reports/promotion")
LATEST = "latest"
BASE = "base"
"""The encoder that the first candidate must beat."""

Outcome = Literal["promoted", "challenger", "refused", "already champion", "rolled back"]


class RuleVerdict(BaseModel):
    """Whether a candidate passed a rule, and the reason in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    passed: bool
    reason: str


class Decision(BaseModel):
    """The decision about a candidate.

    Attributes:
        against: the champion's version, or `base`.
        passed_over: other candidates that were refused or have no results, each with the reason.
        advice: for a refusal, the cause that the numbers show and what to try next.
        behind: candidates with a lower primary metric, which were not judged.
        look: how many sets of candidates the registry has judged on this test data, with this one; 0 where it was not
            counted, as in records of earlier versions.
        version: the registry version with the candidate's weights; empty if there is none.
    """

    # Records of earlier versions have one more field.
    model_config = ConfigDict(frozen=True, extra="ignore")

    outcome: Outcome
    model: str
    encoder: str
    encoder_sha256: str
    against: str
    rules: tuple[RuleVerdict, ...] = ()
    passed_over: tuple[RuleVerdict, ...] = ()
    behind: tuple[RuleVerdict, ...] = ()
    advice: str = ""
    data_hash: str = ""
    protocol: str = ""
    look: int = 0
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
        """The record as Markdown."""
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
        if self.advice:
            lines += [f"Try next: {self.advice}", ""]
        if self.passed_over:
            lines += ["Passed over:", "", *(f"- **{rule.name}**: {rule.reason}" for rule in self.passed_over), ""]
        if self.behind:
            lines += ["Behind it:", "", *(f"- **{rule.name}**: {rule.reason}" for rule in self.behind), ""]
        facts = {
            "version": self.version,
            "previous champion": self.previous_version,
            "training run": self.run_id,
            "git commit": self.git_commit,
            "dvc.lock": self.dvc_lock_sha256,
            "evaluation data": self.data_hash,
            "looks at it": str(self.look or ""),
            "protocol": self.protocol,
        }
        lines += [f"- {name}: `{value}`" for name, value in facts.items() if value]
        return "\n".join(lines) + "\n"


def now() -> str:
    """The current time in UTC with microseconds, sortable as text."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def save(decision: Decision, folder: Path = RECORDS) -> Path:
    """Write the record under its time and as `latest.json` and `latest.md`; returns the first path."""
    record = folder / f"{decision.time.replace(':', '')}.json"
    write_record(record, decision)
    with atomic_file(folder / f"{LATEST}.md") as temporary:
        temporary.write_text(decision.markdown(), encoding="utf-8")
    write_record(folder / f"{LATEST}.json", decision)
    return record


def read(path: Path) -> Decision:
    """Read a record; raises InputError if it is missing or damaged."""
    return read_record(Decision, path, "run `cliptune promote`", "move it out of the folder", formats.DECISION)


def latest(folder: Path = RECORDS) -> Decision | None:
    """The last decision, None if there is none."""
    path = folder / f"{LATEST}.json"
    return read(path) if path.is_file() else None


def history(folder: Path = RECORDS) -> list[Decision]:
    """All decisions, oldest first."""
    return [read(path) for path in sorted(folder.glob("*.json")) if path.stem != LATEST]
