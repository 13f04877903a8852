# SPDX-License-Identifier: Apache-2.0

"""The allocations of jobs, over the REST client of the service."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from laas_service.client.rest import Refused, Rest
from slurm_plugin.world import Allocation, Job

ATTEMPTS = 10_000
"""Most allocations of one job that were given back before it starts."""


class Service:
    """The allocations of one cluster. Every method raises ``Refused``, as ``Rest`` does.

    ``cluster`` is the name of the Slurm cluster; ``fabric`` an id, None for the default.
    """

    def __init__(self, rest: Rest, cluster: str, fabric: str | None) -> None:
        self._rest = rest
        self._cluster = cluster
        self._fabric = fabric

    def allocations(self) -> list[Allocation]:
        """Those of jobs that are alive, in order of creation."""
        listed = self._rest.listed("/v1/allocations", "allocations", fabric=self._fabric)
        return [own for shown in listed if (own := Allocation.of(shown)) is not None]

    def hosts(self) -> frozenset[str]:
        """The names of all hosts of the fabric."""
        path = f"{self._rest.fabric(self._fabric)}/hosts"
        return frozenset(host["name"] for host in self._rest.listed(path, "hosts"))

    def offer(self, job: Job, avoid: Collection[str]) -> str:
        """Queue a request for a job; returns the allocation's id.

        The key of the request follows from the job and from what it asks, so that a request
        that is repeated after a crash finds the allocation of the first.
        """
        body: dict[str, Any] = {"name": f"job-{job.id}", "hosts": job.nodes, "wait": True}
        body["priority"] = job.priority
        if job.seconds is not None:
            body["duration"] = job.seconds
        if avoid:
            body["constraints"] = {"avoid_hosts": sorted(avoid)}
        if self._fabric is not None:
            body["fabric"] = self._fabric
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
        for attempt in range(ATTEMPTS):
            key = {"Idempotency-Key": f"slurm-{self._cluster}-{job.id}-{digest}-{attempt}"}
            made = self._rest.call("POST", "/v1/allocations", body=body, headers=key)
            if made["state"] not in ("releasing", "released"):
                return str(made["id"])
        raise Refused(f"job {job.id} was given back {ATTEMPTS} times")

    def prioritize(self, id: str, priority: int) -> None:
        """Move a request in the queue; one that does not wait any more is no error."""
        try:
            path = f"/v1/allocations/{quote(id, safe='')}"
            self._rest.call("PATCH", path, body={"priority": priority})
        except Refused as refusal:
            if refusal.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    def release(self, id: str) -> None:
        """Give an allocation back; one that is gone already is no error."""
        try:
            self._rest.call("DELETE", f"/v1/allocations/{quote(id, safe='')}")
        except Refused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise
