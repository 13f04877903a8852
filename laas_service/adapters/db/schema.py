# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""The schema's revisions: where the database stands, and bringing it up to date."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from laas_service.adapters.db.engine import WRITES, translated

_MIGRATIONS = Path(__file__).with_name("migrations")


def head() -> str:
    """The revision this release works with."""
    return ScriptDirectory(str(_MIGRATIONS)).get_current_head() or ""


def revisions() -> set[str]:
    """All that this release knows how to bring up to date."""
    return {one.revision for one in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}


def current(connection: Connection) -> str | None:
    """The revision the database is at; None before the first upgrade."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema up to ``revision``; safe to repeat. ``Unavailable``."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with (
        translated(),
        engine.connect().execution_options(**{WRITES: True}) as connection,
        connection.begin(),
    ):
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
