"""The answers. A store from before there were versions has this table and keeps it as it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the table where it is missing."""
    if sa.inspect(op.get_bind()).has_table("generations"):
        return
    op.create_table(
        "generations",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("task", sa.String(64), nullable=False),
        sa.Column("prompt_sha256", sa.String(64), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("sampling", sa.String(200), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("answer", sa.String, nullable=False),
        sa.Column("created", sa.String(32), nullable=False),
    )
    op.create_index("ix_generations_task", "generations", ["task"])
