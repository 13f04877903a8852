# SPDX-License-Identifier: Apache-2.0

"""The audit log: one line of JSON a request, with the fields of a CADF event (DMTF DSP0262).

The lines go to the logger ``laas_service.audit``, which can be sent to a file of its own.
"""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from flask import Request, Response
from oslo_log import log as logging

from laas_service.api.auth import REQUEST_ID
from laas_service.api.microversions import SERVICE_TYPE
from laas_service.api.proxies import CLIENT

LOG = logging.getLogger("laas_service.audit")

READS = frozenset({"GET", "HEAD", "OPTIONS"})
DENIED = frozenset({401, 403, 429})
ACTIONS = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}
KINDS = (
    ("allocation_id", "allocation"),
    ("link_id", "link"),
    ("switch_id", "switch"),
    ("name", "host"),
    ("agent", "agent"),
    ("fabric_id", "fabric"),
)
"""Kinds of targets by path variables; the first variable in the path counts."""

MADE = {"/v1/allocations": "allocation", "/v1/session": "session"}
"""Kinds of targets that a path without variables makes."""

REPORTS = frozenset({"PUT /v1/fabrics/<fabric_id>/agents/<agent>"})
"""Routes that programs call every few seconds; not logged, because nobody decided anything."""

UNKNOWN = "unknown"


def record(request: Request, response: Response, address: str, at: datetime) -> None:
    """Log a request that changes something or is denied; reads and agents' reports are not logged.

    ``address`` is the requested address as the log shows it. No header and no body is logged.
    """
    route = f"{request.method} {request.url_rule.rule if request.url_rule else UNKNOWN}"
    changes = request.method not in READS and route not in REPORTS
    if changes or response.status_code in DENIED:
        LOG.info("%s", json.dumps(event(request, response, address, at), sort_keys=True))


def event(request: Request, response: Response, address: str, at: datetime) -> dict[str, Any]:
    """A request and its outcome as a CADF event."""
    status = response.status_code
    return {
        "typeURI": "http://schemas.dmtf.org/cloud/audit/1.0/event",
        "id": str(uuid.uuid4()),
        "eventType": "activity",
        "eventTime": at.isoformat(),
        "action": _action(request, status),
        "outcome": "failure" if status >= 400 else "pending" if status == 202 else "success",
        "reason": {"reasonType": "HTTP", "reasonCode": str(status)},
        "initiator": _initiator(request),
        "target": _target(request, response),
        "observer": {"typeURI": f"service/{SERVICE_TYPE}", "id": "laas-api"},
        "requestMethod": request.method[:16],
        "requestPath": address,
        "requestId": request.environ.get(REQUEST_ID),
    }


def _action(request: Request, status: int) -> str:
    action = ACTIONS.get(request.method, "read")
    if action != "create" or not request.view_args:
        return "evaluate" if action == "create" and status == 200 else action  # a dry run
    return f"update/{request.path.rsplit('/', 1)[-1]}"


def _initiator(request: Request) -> dict[str, Any]:
    """The caller as authentication established it; a client's own headers are removed before."""
    known = request.environ.get("HTTP_X_IDENTITY_STATUS") == "Confirmed"
    identity: Mapping[str, str] = request.environ if known else {}
    return {
        "typeURI": "service/security/account/user",
        "id": identity.get("HTTP_X_USER_ID") or UNKNOWN,
        "project_id": identity.get("HTTP_X_PROJECT_ID") or UNKNOWN,
        "host": {"address": request.environ.get(CLIENT) or UNKNOWN},
    }


def _target(request: Request, response: Response) -> dict[str, str]:
    names: Mapping[str, str] = request.view_args or {}
    for variable, kind in KINDS:
        if variable in names:
            return {"typeURI": f"service/{SERVICE_TYPE}/{kind}", "id": names[variable][:255]}
    made = response.headers.get("Location", "").rsplit("/", 1)[-1]
    kind = MADE.get(request.path, UNKNOWN)
    return {"typeURI": f"service/{SERVICE_TYPE}/{kind}", "id": made or UNKNOWN}
