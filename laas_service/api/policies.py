# SPDX-License-Identifier: Apache-2.0

"""The default policy rules; ``policy.yaml`` may override them.

Every rule needs a token scoped to a project: a token for a domain or the whole system is
refused whatever its roles. ``admin`` is the cloud's administrator, in any project;
``reader`` and ``member`` (and ``manager``, which implies member) act in their own;
``service`` is the role of other services, and sees inventory and routing but no tenant.

A tenant's rules are checked against the tenant's own project: for a caller that fails
``laas:any_project``, allocations of other projects do not exist.
"""

from oslo_policy import policy

ADMIN = "role:admin"
READER = "role:admin or (role:reader and project_id:%(project_id)s)"
MEMBER = "role:admin or (role:member and project_id:%(project_id)s)"
SERVICE = "role:admin or role:service"

ANY_PROJECT = "laas:any_project"
CONTAINER = "laas:allocation:create_container"
FORCE = "laas:allocation:force_release"
METRICS = "laas:metrics:get"
AVOID = "laas:allocation:avoid"
INVENTORY = "laas:fabric:inventory"
RESIZE = "laas:allocation:resize"
CONSENT = "laas:allocation:consent"
PRIORITY = "laas:allocation:prioritize"
SHARE = "laas:allocation:share_openly"
SHOW = "laas:allocation:get"


def _rule(
    name: str, check: str, description: str, *operations: str
) -> policy.DocumentedRuleDefault:
    methods = [operation.split(" ", 1) for operation in operations]
    return policy.DocumentedRuleDefault(
        name=name,
        check_str=check,
        description=description,
        operations=[{"method": method, "path": path} for method, path in methods],
        scope_types=["project"],
    )


def list_rules() -> list[policy.DocumentedRuleDefault]:
    """Every rule and its default, for oslo.policy and its sample generator."""
    fabric = "/v1/fabrics/{fabric_id}"
    allocation = "/v1/allocations/{allocation_id}"
    return [
        _rule(
            ANY_PROJECT,
            ADMIN,
            "See and act for every project.",
            "GET /v1/quota",
            "GET /v1/allocations",
            "POST /v1/allocations",
        ),
        _rule(
            METRICS,
            SERVICE,
            "Scrape metrics. Checked for callers without a token, too: set it to the empty string "
            "to let everybody who reaches the service scrape.",
            "GET /metrics",
        ),
        _rule(
            "laas:fabric:get",
            f"{READER} or role:service",
            "See fabrics in numbers: shape, utilization, fit.",
            "GET /v1/fabrics",
            f"GET {fabric}",
            f"GET {fabric}/utilization",
            f"GET {fabric}/fit",
        ),
        _rule(
            INVENTORY,
            SERVICE,
            "See all hosts, links and switches with owner, promises of links, idle and crossed "
            "links, routing, observed faults, and agents.",
            f"GET {fabric}/hosts",
            f"GET {fabric}/links",
            f"GET {fabric}/links/{{link_id}}",
            f"GET {fabric}/switches",
            f"GET {fabric}/switches/{{switch_id}}",
            f"GET {fabric}/routing",
            f"GET {fabric}/promises",
            f"GET {fabric}/idle",
            f"GET {fabric}/crossed",
            f"GET {fabric}/plane",
            f"GET {fabric}/agents",
            f"GET {fabric}/observation",
        ),
        _rule(
            "laas:fabric:map",
            f"{READER} or role:service",
            "See the map of a fabric: the own project's hosts and links, and all else alike. "
            "Callers that pass laas:fabric:inventory see everything; names and projects only of "
            "allocations that laas:allocation:get lets them see.",
            f"GET {fabric}/map",
        ),
        _rule(
            "laas:agent:report",
            SERVICE,
            "Report what OpenSM runs, as laas-opensm-agent does; reports free hosts and links.",
            f"PUT {fabric}/agents/{{agent}}",
        ),
        _rule(
            "laas:agent:fetch",
            SERVICE,
            "Fetch the files for OpenSM, with the GUIDs and partition keys of all tenants.",
            f"GET {fabric}/file-set",
            f"GET {fabric}/file-set/{{generation}}/{{file}}",
        ),
        _rule(
            "laas:fabric:update",
            ADMIN,
            "Drain, fail and repair hosts, links and switches; choose what the observation of "
            "links may change; set traits and costs of hosts; withhold links; forget agents.",
            f"PATCH {fabric}/hosts/{{name}}",
            f"PATCH {fabric}/switches/{{switch_id}}",
            f"PATCH {fabric}/links/{{link_id}}",
            f"PUT {fabric}/plane",
            f"PATCH {fabric}/observation",
            f"DELETE {fabric}/agents/{{agent}}",
        ),
        _rule(
            "laas:fabric:delete",
            ADMIN,
            "Stop managing a fabric on which no allocation lives.",
            f"DELETE {fabric}",
        ),
        _rule(
            "laas:fabric:make_room",
            ADMIN,
            "Plan moves of tenants after which a size fits, switches can sleep or shared hosts are "
            "empty, and have them made.",
            f"GET {fabric}/make-room",
            f"POST {fabric}/make-room",
            f"POST {fabric}/sleep",
            f"POST {fabric}/consolidate",
        ),
        _rule(
            "laas:fabric:evacuate",
            ADMIN,
            "Drain hosts or a leaf, and have their tenants moved.",
            f"POST {fabric}/evacuate",
        ),
        _rule(
            "laas:allocation:create",
            MEMBER,
            "Allocate hosts for the own project, or make a dry run.",
            "POST /v1/allocations",
        ),
        _rule(
            CONTAINER,
            MEMBER,
            "Hold hosts and links for further allocations, by the own project or an administrator.",
            "POST /v1/allocations",
        ),
        _rule(
            SHARE,
            ADMIN,
            "Hold hosts that other projects may have slots on.",
            "POST /v1/allocations",
        ),
        _rule(
            SHOW,
            READER,
            "See the own project's allocations.",
            "GET /v1/allocations",
            f"GET {allocation}",
            f"GET {allocation}/history",
            f"GET {allocation}/certificate",
            f"GET {allocation}/promise",
        ),
        _rule(
            "laas:quota:get",
            READER,
            "See what the own project may have and has.",
            "GET /v1/quota",
        ),
        _rule(
            "laas:allocation:update",
            MEMBER,
            "Rename the own project's allocations.",
            f"PATCH {allocation}",
        ),
        _rule(
            RESIZE,
            MEMBER,
            "Change the size of the own project's allocations, or make a dry run of it.",
            f"PATCH {allocation}",
        ),
        _rule(
            CONSENT,
            MEMBER,
            "Say whether the own project's allocations may move to make room for others.",
            "POST /v1/allocations",
            f"PATCH {allocation}",
        ),
        _rule(
            PRIORITY,
            SERVICE,
            "Give queued requests of the own project a priority: those with a higher one go first, "
            "also before requests of other projects.",
            "POST /v1/allocations",
            f"PATCH {allocation}",
        ),
        _rule(
            "laas:allocation:repair",
            MEMBER,
            "Replace failed links of the own project's allocations.",
            f"POST {allocation}/repair",
        ),
        _rule(
            "laas:allocation:replace_hosts",
            MEMBER,
            "Give the own project's allocations other hosts in place of some.",
            f"POST {allocation}/replace-hosts",
        ),
        _rule(
            "laas:allocation:retry",
            MEMBER,
            "Have the next step of the own project's allocations taken now.",
            f"POST {allocation}/retry",
        ),
        _rule(
            "laas:allocation:release",
            MEMBER,
            "Release the own project's allocations.",
            f"DELETE {allocation}",
        ),
        _rule(
            AVOID,
            ADMIN,
            "Name hosts or pods to avoid: with other sizes and names, answers tell what is free.",
            "POST /v1/allocations",
            f"GET {fabric}/fit",
        ),
        _rule(
            FORCE,
            ADMIN,
            "Release an allocation although servers still run on its hosts.",
            f"DELETE {allocation}?force=true",
        ),
    ]
