# SPDX-License-Identifier: Apache-2.0

"""The faults that are played: what happens to the fabric, and what the service has to record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from laas_service.domain.allocation import Allocation
from laas_service.domain.faults.repair import repair
from laas_service.domain.inventory import Cable, Endpoint
from laas_service.domain.topology import LeafLink, Link, SpineLink
from tests.faults.site import Site
from tests.waiting import eventually


@dataclass(frozen=True)
class Expected:
    """What the record has to say at the end, beyond what it said before."""

    failed: frozenset[Link] = frozenset()
    """All links that are failed."""
    withheld: frozenset[Link] = frozenset()
    """All links that are drained by observation."""
    absent: frozenset[str] = frozenset()
    """Hosts that are absent."""

    def holds(self, site: Site) -> bool:
        memory = site.seen.memory
        return (
            site.failed == self.failed
            and memory.withheld == self.withheld
            and self.absent <= memory.hosts.keys()
        )


SOUND = Expected()


class NotHere(Exception):
    """The fabric has nothing that this scenario could break."""


@dataclass(frozen=True)
class Scenario:
    """``prepare`` runs before the clock starts; ``act`` breaks something and names the outcome."""

    name: str
    title: str
    act: Callable[[Site], Expected]
    prepare: Callable[[Site], None] = lambda site: None
    held: bool = True
    """Whether the hold-down is part of the time."""


# -- choosing victims -------------------------------------------------------------


def owned(site: Site) -> Iterator[tuple[str, Link]]:
    """The links of tenants; first those of tenants whose hosts are on several leaves of a rail."""
    records = [record for record in site.records() if record.placed is not None]
    for record in sorted(records, key=lambda r: r.placed is None or len(r.placed.groups) == 1):
        if record.placed is not None:
            for link in record.placed.links(site.topology):
                yield record.id, link


def victim(site: Site, kind: type) -> Link:
    """A link of this kind that a tenant holds, if possible one that can be replaced.

    Raises:
        NotHere: no tenant holds one.
    """
    ledger, _ = site.store.fabrics.ledger("site")
    first = None
    for id, link in owned(site):
        if not isinstance(link, kind):
            continue
        first = first or link
        view = ledger.copy()
        view.fail_link(link)
        if isinstance(repair(view, view.allocations[id]), Allocation):
            return link
    if first is None:
        raise NotHere(f"no tenant holds a {kind.__name__}")
    return first


def cable(site: Site, kind: type) -> Cable:
    return site.inventory.cable_of_link[victim(site, kind)]


def links_of(site: Site, switch: int) -> frozenset[Link]:
    return frozenset(
        link
        for link, cable in site.inventory.cable_of_link.items()
        if switch in (cable.lower.guid, cable.upper.guid)
    )


def leaf(site: Site) -> int:
    """A leaf with hosts of a tenant and links; not the one of the subnet manager."""
    hosted = {
        end.at.guid
        for tenant, _ in site.tenants()
        for host in tenant.hosts(site.topology)
        for end in [site.inventory.endpoint_of_port[host, 0]]
    } - {site.fabric.manager.at.guid}
    with_links = [guid for guid in sorted(hosted) if links_of(site, guid)]
    if not with_links:
        raise NotHere("the only leaf with tenants is that of the subnet manager")
    return with_links[0]


def host(site: Site) -> int:
    """A host of a tenant."""
    return site.tenants()[0][0].hosts(site.topology)[0]


def ports_of(site: Site, hosts: Iterable[int]) -> list[Endpoint]:
    wanted = set(hosts)
    return [end for end in site.inventory.endpoints if end.host in wanted]


# -- acting -----------------------------------------------------------------------


def cut_one(kind: type) -> Callable[[Site], Expected]:
    def act(site: Site) -> Expected:
        broken = cable(site, kind)
        site.cut([broken.lower])
        assert broken.link is not None
        return Expected(frozenset([broken.link]))

    return act


def l2(site: Site) -> int:
    return cable(site, LeafLink).upper.guid


def spine(site: Site) -> int:
    return cable(site, SpineLink).upper.guid


def kill(choose: Callable[[Site], int]) -> Callable[[Site], Expected]:
    def act(site: Site) -> Expected:
        switch = choose(site)
        links = links_of(site, switch)
        site.kill(switch)
        return Expected(links)

    return act


def kill_host(site: Site) -> Expected:
    ends = ports_of(site, [host(site)])
    site.cut(end.at for end in ends)
    return Expected(absent=frozenset([site.inventory.host_names[host(site)]]))


def flap_twice(site: Site) -> None:
    """A cable goes down and up again, and the service notices each time."""
    flapping = cable(site, LeafLink)
    assert flapping.link is not None
    for downs in (1, 2):
        site.cut([flapping.lower])
        _noticed(site, flapping.link, downs, down=True)
        site.mend([flapping.lower])
        _noticed(site, flapping.link, downs, down=False)
    eventually(site.is_confirmed, site.describe, patience=site.patience)


def _noticed(site: Site, link: Link, downs: int, *, down: bool) -> None:
    """Wait until the service has seen the cable down (or up again) so often."""

    def is_so() -> bool:
        entry = site.seen.memory.links.get(link)
        return entry is not None and len(entry.downs) >= downs and (entry.up_since is None) == down

    eventually(is_so, site.describe, patience=site.patience)


def flap(site: Site) -> Expected:
    """The cable that went down twice goes down again."""
    (link,) = site.seen.memory.links
    site.cut([site.inventory.cable_of_link[link].lower])
    return Expected(frozenset([link]))


def silence(site: Site) -> Expected:
    try:
        switch = spine(site)
    except NotHere:
        switch = l2(site)
    site.silence(switch)
    return Expected(withheld=links_of(site, switch))


def lose_first(site: Site) -> None:
    """A top switch dies, and the service has recorded that."""
    try:
        switch = spine(site)
    except NotHere:
        switch = l2(site)
    links = links_of(site, switch)
    site.kill(switch)
    eventually(
        lambda: site.failed == links and site.is_settled(), site.describe, patience=site.patience
    )


def revive(site: Site) -> Expected:
    for port in set(site.wiring.recorded) - set(site.wiring.far):
        if port.guid in site.inventory.switch_of_guid:
            site.mend([port])
    return SOUND


SCENARIOS = (
    Scenario("leaf-link", "cut link of a tenant, leaf to L2", cut_one(LeafLink)),
    Scenario("spine-link", "cut link of a tenant, L2 to spine", cut_one(SpineLink)),
    Scenario("l2", "dead L2 switch", kill(l2)),
    Scenario("spine", "dead spine", kill(spine)),
    Scenario("leaf", "dead leaf", kill(leaf)),
    Scenario("host", "dead host", kill_host, held=False),
    Scenario(
        "flapping",
        "third time that a cable goes down (quarantine)",
        flap,
        flap_twice,
        held=False,
    ),
    Scenario("silent", "silent top switch", silence),
    Scenario("returning", "dead top switch returns", revive, lose_first, held=False),
)
