# SPDX-License-Identifier: Apache-2.0

"""The subnet-manager port on a stand-in, with a record in memory."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import connect, write_transaction
from laas_service.adapters.db.ufm_memory import SqlUfmMemory
from laas_service.adapters.ufm.manager import UfmRules, UfmSubnetManager
from laas_service.adapters.ufm.rest import UfmRest, UfmSettings
from laas_service.app.records import Observation
from laas_service.messages import FabricState

OURS = range(0x100, 0x2000)
"""The keys of the service in tests; those of ``states.state`` are among them."""


class Record:
    """The newest recorded routes of one fabric, and what is observed of it."""

    def __init__(self, state: FabricState) -> None:
        self.state, self.seen = state, Observation()
        self.fabrics = self.faults = self

    def get(self, id: str) -> Any:
        return SimpleNamespace(
            id=id,
            routes_generation=self.state.generation,
            routes_stamp=self.state.stamp,
            inventory=self.state.inventory,
        )

    def routed(self, fabric_id: str) -> FabricState:
        return self.state

    def observation(self, fabric_id: str) -> Observation:
        return self.seen


def remembering(fabric: str, url: str = "sqlite://", **options) -> SqlUfmMemory:
    """A memory in a new database, which has the fabric; by default it ends with the process."""
    engine = connect(url)
    models.Base.metadata.create_all(engine)
    with write_transaction(engine) as session:
        session.add(
            models.FabricRow(
                id=fabric,
                generation=1,
                routes_generation=1,
                topology={},
                inventory={},
                created_at=datetime.now(UTC),
            )
        )
    return SqlUfmMemory(engine, **options)


def settings(standin, directory, **options) -> UfmSettings:
    """Settings with a token in a file."""
    token = directory / "ufm-token"
    if not token.exists():
        token.write_text(standin.token() + "\n")
        token.chmod(0o600)
    return UfmSettings(standin.url, token_file=token, **options)


def manager(
    standin,
    directory,
    record,
    files=None,
    *,
    memory=None,
    timeout=10.0,
    job_timeout=60.0,
    sleep=None,
    clock=time.monotonic,
    now=time.time,
    **rules,
):
    rest = UfmRest(
        settings(standin, directory, timeout=timeout, job_timeout=job_timeout),
        sleep=sleep or (lambda seconds: None),
    )
    fabric = record.state.fabric
    memory = remembering(fabric) if memory is None else memory
    own = UfmRules(fabric, **{"pkeys": OURS, **rules})
    return UfmSubnetManager(rest, own, record, memory, files, clock=clock, now=now)
