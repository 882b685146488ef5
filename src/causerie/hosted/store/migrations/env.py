"""Alembic's entry point: runs the migrations on the connection that the database hands over."""

from __future__ import annotations

from alembic import context

from causerie.hosted.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
