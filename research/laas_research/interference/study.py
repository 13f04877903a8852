# SPDX-License-Identifier: Apache-2.0

"""What isolation is worth: the same tenants under several policies and routings, compared."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, cycle, islice, zip_longest
from random import Random
from statistics import mean
from typing import Any

from laas_research.experiments.figures import Figure, Point
from laas_research.interference.engine import BANDWIDTH, LATENCY, Application, Played, play
from laas_research.interference.routes import (
    FluidRoutes,
    PrivateRoutes,
    RandomRoutes,
    Routes,
    TableRoutes,
)
from laas_research.interference.traffic import PATTERNS, STORAGE, Phase, storage
from laas_service.domain.admission.admit import admit
from laas_service.domain.allocation import Allocation, Request
from laas_service.domain.common_plane import NO_PLANE, CommonPlane
from laas_service.domain.constraints import Constraints
from laas_service.domain.errors import InvalidInput
from laas_service.domain.inventory import Inventory
from laas_service.domain.ledger import Ledger
from laas_service.domain.policies import POLICIES
from laas_service.domain.routing.contention import rank_order
from laas_service.domain.routing.fabric_tables import forwarding_tables
from laas_service.domain.topology import Topology
from laas_service.simulator.measured import RANDOM, ROUTINGS, SHARED

CHURN = 4
"""So many times as there are tenants one leaves and another comes, before the traffic starts."""

LOAD = 0.85
"""The part of the hosts that tenants ask for together."""

HOSTS_A_SERVER = 64
"""There is a storage server for so many hosts, unless a study says how many there are."""

RESOLUTION = 0.01
"""Events closer than this part of a mean iteration count as one where all tenants send."""

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Study:
    """The tenants, what they send, and what is compared."""

    tenants: int = 32
    patterns: Sequence[str] = ("stencil-2d",)
    """The first tenant sends the first, the next tenant the next, and so on in turn."""
    messages: Sequence[int] = (1024, 8192, 32768, 131072, 1048576)
    """Bytes."""
    policies: Sequence[str] = ("baseline", "laas", "jigsaw")
    routings: Sequence[str] = ROUTINGS
    servers: int = 0
    """Storage servers, for the pattern ``storage``; 0 for one in ``HOSTS_A_SERVER`` hosts."""
    plane: CommonPlane = NO_PLANE
    """Links that tenants with links of their own do not get: their storage traffic takes these."""
    compute: float = 0.0
    """The part of an iteration, alone in a private cluster, in which a tenant computes; below 1."""
    iterations: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        for field, values, known in (
            ("pattern", self.patterns, (*PATTERNS, STORAGE)),
            ("policies", self.policies, (*POLICIES, RANDOM)),
            ("routings", self.routings, ROUTINGS),
        ):
            for value in values:
                if value not in known:
                    raise InvalidInput(field, value, f"choose from {', '.join(known)}")
        if not self.patterns:
            raise InvalidInput("pattern", [], "give one or more")
        if self.servers < 0:
            raise InvalidInput("servers", self.servers, "give a whole number of at least 0")
        if not 0 <= self.compute < 1:
            raise InvalidInput("compute", self.compute, "give a share from 0 to less than 1")
        if min(self.messages, default=0) < 1:
            raise InvalidInput("messages", list(self.messages), "give sizes of 1 byte or more")


def run(
    study: Study,
    topology: Topology,
    inventory: Inventory,
    progress: Callable[[int, int], None] = lambda done, total: None,
    player: Callable[..., Played] = play,
) -> list[Result]:
    """One result for each policy, routing and message size; equal studies give equal results.

    ``slowdown`` is the mean over tenants of their time among all others over their time alone at
    the same place, ``by_pattern`` the same by pattern; ``to_private`` the mean of their time
    over that in a cluster of their own, and ``to_private_alone`` the same while nobody else
    sends. ``cluster`` is the number of hosts of the fabric. ``by_size`` has the hosts of each
    tenant, its slowdown and its time over that in a cluster of its own. ``links_met`` are directed
    links on which two tenants were at one time, those of storage servers included; ``bytes_met``
    the bytes they sent there in that time. ``player`` plays the tenants as ``play`` does.

    Raises:
        InvalidInput: there are as many storage servers as hosts, or more.
    """
    cases = list(_cases(study))
    results = []
    for number, (policy, routing) in enumerate(cases):
        tenants = place(study, topology, policy)
        routes = _routes(study, topology, inventory, routing, tenants)
        for message in study.messages:
            results.append(
                _compared(study, topology, policy, routing, tenants, routes, message, player)
            )
        progress(number + 1, len(cases))
    return results


def _cases(study: Study) -> Iterator[tuple[str, str]]:
    for policy in study.policies:
        own = policy not in SHARED
        for routing in study.routings:
            if (routing == "own") == own:
                yield policy, routing


def storage_servers(study: Study, topology: Topology) -> list[int]:
    """The hosts that are storage servers instead: the last ones of every pod, pods in turn.

    None, unless a tenant of the study has storage traffic.

    Raises:
        InvalidInput: there are fewer hosts than that.
    """
    if STORAGE not in study.patterns:
        return []
    hosts = [host for host in range(topology.hosts) if host not in topology.absent_hosts]
    count = study.servers or max(1, len(hosts) // HOSTS_A_SERVER)
    if count >= len(hosts):
        raise InvalidInput("servers", count, f"give less than the {len(hosts)} hosts")
    by_pod: dict[int, list[int]] = defaultdict(list)
    for host in sorted(hosts, key=topology.place_of, reverse=True):
        by_pod[topology.place_of(host)[0] // topology.groups_per_pod].append(host)
    turns = zip_longest(*by_pod.values())
    return [host for turn in turns for host in turn if host is not None][:count]


def place(study: Study, topology: Topology, policy: str) -> list[Allocation]:
    """The tenants that run at one time: of equal sizes under every policy, after a churn.

    Sizes are exponential. Tenants come and go ``CHURN`` times as often as there are tenants; a
    tenant that finds no room is halved until it does. Storage servers are no hosts of tenants, and
    the links of the plane are not theirs.

    Raises:
        InvalidInput: as ``storage_servers``.
    """
    random, among = (Random(f"{study.seed} {what}") for what in ("sizes", "hosts"))  # noqa: S311
    ledger = Ledger(topology)
    ledger.withhold(study.plane)
    servers = storage_servers(study, topology)
    for server in servers:
        ledger.drain_host(server)
    hosts = topology.hosts - len(topology.absent_hosts) - len(servers)
    average = hosts * LOAD / study.tenants
    live: list[str] = []
    sizes: dict[str, int] = {}
    for number in range(study.tenants * (1 + CHURN)):
        size = min(hosts // 4, max(2, round(random.expovariate(1 / average))))
        if len(live) >= study.tenants:
            gone = live.pop(random.randrange(len(live)))
            ledger.release(gone)
            del sizes[gone]
        size = max(2, min(size, round(hosts * LOAD) - sum(sizes.values())))
        while size >= 2:
            answer = _admitted(policy, ledger, Request(f"t{number}", size), among)
            if answer is not None:
                live.append(answer.id)
                sizes[answer.id] = size
                break
            size //= 2
    return [ledger.allocations[id] for id in live]


def _admitted(policy: str, ledger: Ledger, request: Request, random: Random) -> Allocation | None:
    if policy != RANDOM:
        answer = admit(POLICIES[policy](), ledger, request)
        return answer if isinstance(answer, Allocation) else None
    topology = ledger.topology
    free = [
        host
        for host in range(topology.hosts)
        for group, position in [topology.place_of(host)]
        if ledger.free_hosts[group] >> position & 1
    ]
    if len(free) < request.hosts:
        return None
    away = frozenset(free).difference(random.sample(free, request.hosts))
    wish = replace(request, constraints=Constraints(avoid_hosts=away))
    answer = admit(POLICIES["baseline"](), ledger, wish)
    return answer if isinstance(answer, Allocation) else None


def _routes(
    study: Study,
    topology: Topology,
    inventory: Inventory,
    routing: str,
    tenants: Sequence[Allocation],
) -> Routes:
    if routing == "ecmp":
        return RandomRoutes(topology, inventory, Random(f"{study.seed} routes"))  # noqa: S311
    if routing == "adaptive":
        return FluidRoutes(topology, inventory)
    tables = (
        forwarding_tables(topology, inventory, tenants, plane=study.plane)
        if routing == "own"
        else forwarding_tables(topology, inventory, [])
    )
    return TableRoutes(topology, inventory, tables)


def _phases(pattern: str, hosts: Sequence[int], servers: int, random: Random) -> list[Phase]:
    if pattern == STORAGE:
        return storage(len(hosts), servers, random)
    return PATTERNS[pattern](len(hosts), random)


def _compared(
    study: Study,
    topology: Topology,
    policy: str,
    routing: str,
    tenants: Sequence[Allocation],
    routes: Routes,
    message: int,
    player: Callable[..., Played],
) -> Result:
    random = Random(f"{study.seed} traffic")  # noqa: S311
    private = PrivateRoutes(topology)
    servers = storage_servers(study, topology)
    applications, in_private = [], []
    patterns = list(islice(cycle(study.patterns), len(tenants)))
    for tenant, pattern in zip(tenants, patterns, strict=True):
        hosts = rank_order(topology, tenant)
        if policy == RANDOM:
            random.shuffle(hosts)
        phases = _phases(pattern, hosts, len(servers), random)
        bare = Application([*hosts, *servers], phases, message)
        seconds = player([bare], private, rails=topology.rails, iterations=1).seconds[0]
        compute = seconds * study.compute / (1 - study.compute)
        applications.append(replace(bare, compute=compute))
        in_private.append(seconds + compute)
    starts = [random.uniform(0, seconds) for seconds in in_private]
    iterations = study.iterations
    played = partial(
        player, routes=routes, rails=topology.rails, resolution=RESOLUTION * mean(in_private)
    )
    alone = [
        played([application], iterations=1).seconds[0] + application.compute
        for application in applications
    ]
    together = played(applications, iterations=iterations, starts=starts)
    loops = [
        (seconds * iterations + application.compute) / iterations
        for seconds, application in zip(together.seconds, applications, strict=True)
    ]
    slowdowns, to_private = _ratios(loops, alone), _ratios(loops, in_private)
    return {
        "policy": policy,
        "routing": routing,
        "pattern": ", ".join(study.patterns),
        "message": message,
        "cluster": topology.hosts - len(topology.absent_hosts),
        "tenants": len(tenants),
        "hosts": sum(tenant.size for tenant in tenants),
        "slowdown": round(mean(slowdowns), 4),
        "slowdown_worst": round(max(slowdowns), 4),
        "by_pattern": {
            pattern: round(mean(compress(slowdowns, [sent == pattern for sent in patterns])), 4)
            for pattern in dict.fromkeys(patterns)
        },
        "to_private": round(mean(to_private), 4),
        "to_private_alone": round(mean(_ratios(alone, in_private)), 4),
        "links_met": len(together.meetings.links),
        "bytes_met": round(together.meetings.byte_count),
        "by_size": [
            [tenant.size, round(x, 4), round(y, 4)]
            for tenant, x, y in zip(tenants, slowdowns, to_private, strict=True)
        ],
    }


def _ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    return [float(a / b) for a, b in zip(times, others, strict=True)]


# -- figures --------------------------------------------------------------------

FIGURE_11 = (1728, 32, "stencil-2d")
"""LaaS (ANCS'16), section 4.3: the hosts, tenants and pattern of Figure 11."""

PAPER = {32768: 45.0}
"""Message size -> the one value of Figure 11 that the text states: percent of the speed of a tenant
alone that it keeps among 31 others, without isolation. The other bars have no printed values."""


def figures(results: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """What each routing and policy reaches, and the bars of Figure 11 of LaaS (ANCS'16).

    The values of the paper are beside those of a study with its hosts, tenants and pattern.
    """
    names = list(dict.fromkeys(f"{r['policy']}, {r['routing']}" for r in results))
    first = results[0]
    published = (first["cluster"], first["tenants"], first["pattern"]) == FIGURE_11
    paper = PAPER if published else {}
    speeds: dict[str, list[Point]] = {}
    private, met = {}, {}
    for name in names:
        rows = [r for r in results if f"{r['policy']}, {r['routing']}" == name]
        several = len(rows[0]["by_pattern"]) > 1
        for pattern in rows[0]["by_pattern"]:
            speeds[f"{name}, {pattern}" if several else name] = [
                Point(r["message"], 100 / r["by_pattern"][pattern]) for r in rows
            ]
        private[name] = [Point(r["message"], 100 / r["to_private"]) for r in rows]
        met[name] = [Point(r["message"], r["links_met"]) for r in rows]
    return [
        *(_bars(results, shared, paper) for shared in SHARED if f"{shared}, d-mod-k" in names),
        Figure(
            "interference",
            f"speed of a tenant among the others, {first['pattern']}",
            "message, bytes",
            "percent of its speed alone at the same place",
            speeds,
        ),
        Figure(
            "private cluster",
            f"speed of a tenant among the others, {first['pattern']}",
            "message, bytes",
            "percent of its speed in a cluster of its own",
            private,
        ),
        Figure(
            "meetings",
            "links on which two tenants were at one time",
            "message, bytes",
            "directed links",
            met,
            digits=0,
        ),
    ]


def _bars(results: Sequence[Mapping[str, Any]], shared: str, paper: Mapping[int, float]) -> Figure:
    """Figure 11 of LaaS with a placement as *Unconstrained*, and other routings beside it."""
    base = {
        r["message"]: r["to_private_alone"]
        for r in results
        if (r["policy"], r["routing"]) == (shared, "d-mod-k")
    }
    curves: dict[str, list[Point]] = defaultdict(list)
    for r in results:
        if r["policy"] in SHARED and r["policy"] != shared:
            continue
        message, name = r["message"], f"{r['policy']}, {r['routing']}"
        alone = 100 * base[message] / r["to_private_alone"]
        unconstrained = name == f"{shared}, d-mod-k"
        stated = 100.0 if paper and unconstrained else None
        curves[f"{name}, alone"].append(Point(message, alone, stated))
        stated = paper.get(message) if unconstrained else None
        curves[f"{name}, all tenants"].append(Point(message, alone / r["slowdown"], stated))
    return Figure(
        f"LaaS, Figure 11, unconstrained is {shared}",
        f"speed of a tenant alone and among the others, {results[0]['pattern']}",
        "message, bytes",
        f"percent of its speed alone on {shared} hosts with d-mod-k",
        curves,
        reason="Of the bars of the paper only one has a value in its text, and one is 100 by "
        "definition. Rates are max-min fair; the paper simulates flits, with back-pressure.",
    )


def defaults() -> str:
    """The assumptions in a sentence."""
    return (
        f"Links of {BANDWIDTH / 1e9:g} GB/s, {LATENCY * 1e6:g} us for a message, tenants of "
        f"exponential sizes on {LOAD:.0%} of the hosts, after {CHURN} times as many arrivals."
    )
