# SPDX-License-Identifier: Apache-2.0

"""A simulated next release: this code with one migration more, that only adds.

The migration adds a table, and a column to ``allocation``, which the code of that release knows.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from laas_service.adapters.db import schema

ROOT = Path(__file__).parents[2]
NEXT = "z001"

MIGRATION = f'''
import sqlalchemy as sa

from laas_service.adapters.db.migrations import steps
from laas_service.adapters.db.types import exact

revision = "{NEXT}"
down_revision = "{{before}}"


def upgrade() -> None:
    steps.add_column("allocation", sa.Column("colour", exact(16), server_default="none"))
    steps.create_table(
        "next_release", sa.Column("id", exact(64)), sa.PrimaryKeyConstraint("id", name="pk_next")
    )
'''

MODELS = """

Allocation.colour = mapped_column(exact(16), server_default="none")


class NextRelease(Base):
    __tablename__ = "next_release"

    id: Mapped[str] = mapped_column(exact(64), primary_key=True)
"""


def make(directory: Path) -> Path:
    """Write the code of the next release; returns the directory to import it from."""
    for package in ("laas_service", "opensm_writer"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, directory / package, ignore=ignored)
    db = directory / "laas_service" / "adapters" / "db"
    migration = MIGRATION.format(before=schema.head())
    (db / "migrations" / "versions" / f"{NEXT}_next.py").write_text(migration)
    with (db / "models.py").open("a") as models:
        models.write(MODELS)
    return directory
