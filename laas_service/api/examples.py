# SPDX-License-Identifier: Apache-2.0

"""Groups of operations, and example requests, for the OpenAPI document and clients made of it."""

from typing import Any

TAGS = {
    "allocations": "Hosts and links of a tenant, and the limits of a project.",
    "fabrics": "Shape, use, routes and maps of a fabric; moves of tenants in it.",
    "parts": "Hosts, links and switches of a fabric, and their states.",
    "agents": "Reports of the OpenSM agents, and the files they fetch.",
    "service": "Versions, health, metrics, page and logins of the service itself.",
}
"""Groups of operations, each with a description of what is in it."""

_PARTS = ("hosts", "links", "switches", "idle", "crossed", "promises", "plane", "observation")


def tag(path: str) -> str:
    """The group of the operations at a path."""
    words = path.split("/")
    if path.startswith(("/v1/allocations", "/v1/quota")):
        return "allocations"
    if not path.startswith("/v1/fabrics"):
        return "service"
    part = words[4] if len(words) > 4 else ""
    if part in ("agents", "file-set"):
        return "agents"
    return "parts" if part in _PARTS else "fabrics"


PATH = {
    "fabric_id": "main",
    "allocation_id": "6f9619ff-8b86-4011-b42d-00cf4fc964ff",
    "switch_id": "leaf-0-0",
    "link_id": "leaf-0-3-3",
    "agent": "sm1",
    "generation": "7",
    "file": "partitions.conf",
}
"""An example of each variable of a path; ``name`` has ``NAMES``."""

NAMES = {"/view/{name}": "page.js", "/v1/fabrics/{fabric_id}/hosts/{name}": "node08"}
"""An example of ``name``, by path."""

BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/session": {"username": "ada", "password": "secret", "project": "physics"},
    "POST /v1/allocations": {
        "name": "red",
        "hosts": 4,
        "constraints": {"within": "pod"},
        "duration": 7200,
    },
    "PATCH /v1/allocations/{allocation_id}": {"hosts": 5},
    "POST /v1/allocations/{allocation_id}/replace-hosts": {"hosts": ["node00"], "dry_run": True},
    "POST /v1/fabrics/{fabric_id}/make-room": {"hosts": 8, "moves": 1, "dry_run": True},
    "POST /v1/fabrics/{fabric_id}/sleep": {"moves": 2, "dry_run": True},
    "POST /v1/fabrics/{fabric_id}/consolidate": {"moves": 8, "dry_run": True},
    "POST /v1/fabrics/{fabric_id}/evacuate": {"switch": "leaf-0-0", "dry_run": True},
    "PATCH /v1/fabrics/{fabric_id}/switches/{switch_id}": {
        "state": "maintenance",
        "reason": "new firmware",
    },
    "PUT /v1/fabrics/{fabric_id}/plane": {"l2": [3], "dry_run": True},
    "PATCH /v1/fabrics/{fabric_id}/hosts/{name}": {"state": "drained", "reason": "fan 3 is loud"},
    "PATCH /v1/fabrics/{fabric_id}/links/{link_id}": {"state": "failed", "reason": "cable pulled"},
    "PATCH /v1/fabrics/{fabric_id}/observation": {"mode": "observe"},
    "PUT /v1/fabrics/{fabric_id}/agents/{agent}": {
        "condition": "applied",
        "detail": "",
        "generation": 7,
    },
}
"""An example body of each operation that takes one."""
