"""Several workers on one store: what each has taken, what failed, and which exports were imported."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the three tables."""
    op.create_table(
        "failures",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "claims",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("worker", sa.String(255), nullable=False),
        sa.Column("lease_end", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "imports",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("rows", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
