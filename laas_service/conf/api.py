# SPDX-License-Identifier: Apache-2.0

"""[api]: address, authentication, limits, policies and default fabric of the REST interface."""

from oslo_config import cfg

from laas_service.conf.group import Group, setting
from laas_service.domain.constraints import ContentionFree
from laas_service.domain.errors import InvalidInput
from laas_service.domain.policies import POLICIES
from laas_service.domain.policies.base import Policy

GROUP = "api"


def _known_policies(names: list[str]) -> list[str]:
    """The names of policies. Raises: InvalidInput."""
    for name in names:
        if name not in POLICIES:
            fix = f"choose among {', '.join(sorted(POLICIES))}"
            raise InvalidInput("[api] enabled_policies", name, fix)
    return names


class ApiOptions(Group, name=GROUP):
    """The options of [api]."""

    bind_host: str = setting(cfg.HostAddressOpt, "127.0.0.1")
    """Address laas-api listens on.

    With auth_strategy = none it must be a loopback address, because every caller is then an
    administrator; requests that a proxy forwarded are refused. Set it if clients on other machines
    reach laas-api without a proxy on this one."""

    bind_port: int = setting(cfg.PortOpt, 8780)
    """Port laas-api listens on. With 0 it takes a free port and logs the number. Change it if
    another service has the port."""

    auth_strategy: str = setting(
        cfg.StrOpt,
        "none",
        choices=[
            ("keystone", "Keystone checks tokens; configure [keystone_authtoken]"),
            ("none", "no tokens; loopback only"),
        ],
    )
    """How callers authenticate.

    Choose keystone wherever anybody but the machine's own users can reach the service."""

    threads: int = setting(cfg.IntOpt, 16, min=2)
    """Number of requests that laas-api handles at one time. Half of them may wait with ?wait=;
    further ones are answered at once. Each thread costs some memory: raise it if many clients wait.
    Allocations of one fabric are always decided one after the other."""

    connections: int = setting(cfg.IntOpt, 800, min=16)
    """Number of connections that laas-api holds at one time. Further clients wait in the operating
    system's queue until one ends.

    Each connection needs a file descriptor: raise the limit of the process (LimitNOFILE in systemd)
    with it. A connection costs a few kilobytes and no thread until a whole request has arrived."""

    request_timeout: int = setting(cfg.IntOpt, 30, min=1)
    """Seconds within which a whole request, headers and body, has to arrive after its first byte,
    and after which a connection ends on which nothing moves. A client that sends a byte now and
    then gains no time, and one that takes no byte of an answer loses its connection.

    Lower it where strangers reach laas-api directly. Behind a proxy that buffers requests the
    default is enough."""

    trusted_proxies: list[str] = setting(cfg.ListOpt, [])
    """Addresses or networks of the proxies in front of the API, such as 192.0.2.10 or
    2001:db8::/64.

    The audit trail names the address that a request came from. Only of a request from one of these
    addresses does it name the client that Forwarded or X-Forwarded-For gives: the last address
    there that is not a proxy's. Set it as soon as a proxy stands in front of the API."""

    audit: bool = setting(cfg.BoolOpt, True, mutable=True)
    """Whether the logger laas_service.audit gets a line for each request that changes something or
    is denied. The line names initiator, action and outcome in the fields of a CADF event. Set False
    only where a proxy already records every request with its user."""

    search_budget: int = setting(cfg.IntOpt, 4_000_000, min=100_000)
    """Work that all searches for one request may do together: the search for a placement of hosts
    or slots, for the largest size that fits, for allocations whose release makes room, for tenants
    that fit at other risks, and for queued requests that may start. One unit takes about half a
    microsecond, so the default is about two seconds. A request that is decided again, because
    another one was faster, has the whole budget again.

    If the budget is used up, the answer holds the result so far and says so (code search_budget,
    or cut_off beside the answer). Raise it for full explanations on fabrics with many tenants.
    Lower it where untrusted people send requests."""

    max_wait: float = setting(cfg.FloatOpt, 60.0, mutable=True, min=0.0)
    """Longest time in seconds that a request may wait with ?wait=. Keep it below the time-out of
    any proxy in front of the service."""

    enabled_policies: list[str] = setting(cfg.ListOpt, ["jigsaw"], read=_known_policies)
    """Policies that requests may name. The policies baseline and ta do not isolate, and are for
    comparison in laas-plan. Enable one of them only where tenants need no links of their own."""

    default_policy: str = setting(cfg.StrOpt, "jigsaw")
    """Policy of requests that name none. It must be one of enabled_policies. Change it if most
    requests should have a shape of another policy."""

    contention_free: ContentionFree | None = setting(
        cfg.StrOpt,
        "",
        read=lambda value: ContentionFree(value) if value else None,
        choices=(
            ("", "any legal shape"),
            ("prefer", "a shape without contention, if one costs no more and takes no more pods"),
            ("require", "only a shape without contention; a request is refused without one"),
        ),
    )
    """What requests want that do not say whether their shape has to be free of contention: that no
    shift of their hosts puts two flows on one link. The page of policies has the cost of each value
    in utilization. Choose prefer for tenants that run collective operations, and require if their
    run times must repeat."""

    default_fabric: str | None = setting(cfg.StrOpt)
    """Fabric of requests and commands that name none. Set it if the service manages several fabrics
    and most requests are for one of them; without it they have to name one."""

    @property
    def policies(self) -> dict[str, Policy]:
        """Those that are enabled, by name."""
        return {name: POLICIES[name]() for name in self.enabled_policies}

    @property
    def waiters(self) -> int:
        """Requests that may wait at one time: each holds a thread, so half of the threads."""
        return self.threads // 2
