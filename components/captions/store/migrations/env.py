"""What Alembic runs to bring a store up to date, in the transaction of the connection that it is given."""

from __future__ import annotations

from alembic import context

from components.captions.store.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
