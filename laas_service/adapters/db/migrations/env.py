# SPDX-License-Identifier: Apache-2.0

"""Run by alembic: applies revisions over the connection that ``schema`` hands in."""

from alembic import context

from laas_service.adapters.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
