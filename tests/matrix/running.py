# SPDX-License-Identifier: Apache-2.0

"""The test's side of a process of the service: the process itself, and a pipe to it."""

from __future__ import annotations

import multiprocessing
from typing import Any

from tests.matrix import process
from tests.matrix.site import Site

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest",
        "tests.matrix.cell",
        "laas_service.api.app",
        "novaclient.v2.client",
        "keystoneauth1.loading._plugins.admin_token",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.pysqlite",
    ]
)
"""Forks from a server process that has imported the service and runs no threads."""


class Running:
    """A process of the service, and the test's end of its pipe."""

    def __init__(self, kind: str, site: Site) -> None:
        self.kind = kind
        self.pipe, theirs = FORKS.Pipe()
        log = site.world.directory / f"{kind}.log"
        self._process = FORKS.Process(
            target=process.run, args=(kind, site.config, theirs, log), daemon=True
        )
        self._process.start()
        theirs.close()
        site.processes.append(self._process.pid or 0)
        self.port = 0
        self.resting = False
        self.rounds = 0

    def tell(self, *words: Any) -> None:
        self.pipe.send(words[0] if len(words) == 1 else words)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()
