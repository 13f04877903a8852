# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""laas-manage db: the tables."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from laas_service.cmd.manage.shared import parts_of

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    add = commands.add_parser("upgrade", help="bring the tables up to this release")
    add.set_defaults(command=upgrade)
    add = commands.add_parser("version", help="where the tables are, and should be")
    add.set_defaults(command=version)


def upgrade(args: argparse.Namespace) -> int:
    """Bring the tables up to what this release needs; safe to repeat."""
    parts = parts_of(args)
    parts.upgrade_database()
    print(f"the database is at revision {parts.database_revisions()[0]}")
    return 0


def version(args: argparse.Namespace) -> int:
    """Print the revisions; 1 if the tables are not where this release needs them."""
    current, head = parts_of(args).database_revisions()
    print(f"the database is at revision {current or 'none'}, this release needs {head}")
    return 0 if current == head else 1
