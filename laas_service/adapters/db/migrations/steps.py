# SPDX-License-Identifier: Apache-2.0

"""Repeatable steps of migrations: each step skips a change that has been made before.

MariaDB commits every change of a table by itself. An interrupted migration therefore leaves some
changes made, and the next ``laas-manage db upgrade`` runs the whole migration again.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem


def has_table(name: str) -> bool:
    return bool(sa.inspect(op.get_bind()).has_table(name))


def has_column(table: str, name: str) -> bool:
    return name in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}


def add_column(table: str, column: sa.Column[Any]) -> None:
    if not has_column(table, column.name):
        op.add_column(table, column)


def create_table(name: str, *items: SchemaItem) -> None:
    if not has_table(name):
        op.create_table(name, *items)


def create_index(name: str, table: str, columns: list[str]) -> None:
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in present:
        op.create_index(name, table, columns)


def drop_table(name: str) -> None:
    if has_table(name):
        op.drop_table(name)
