# SPDX-License-Identifier: Apache-2.0

"""Strangers on an allocation's hosts: other projects' servers, and aggregates that admit others."""

from collections.abc import Collection, Iterable, Mapping

from laas_service.adapters.nova.aggregates import Aggregate, Aggregates
from laas_service.adapters.nova.hypervisors import Hypervisor
from laas_service.adapters.nova.keys import ALLOCATION, OWNER, OwnKeys, aggregate_name
from laas_service.adapters.nova.occupancy import Occupancy, sentence
from laas_service.adapters.nova.shares import SlotQuestions
from laas_service.app.ports.compute import Handover
from laas_service.domain.errors import Conflict, HostsBusy
from laas_service.domain.wording import listed


class StrangerSearch:
    """Looks for what must not share hosts with an allocation or with the pool; changes nothing."""

    def __init__(
        self, keys: OwnKeys, aggregates: Aggregates, occupancy: Occupancy, slots: SlotQuestions
    ) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._occupancy = occupancy
        self._slots = slots

    def suspects(self, handover: Handover, hypervisors: Mapping[str, Hypervisor]) -> set[str]:
        """The hosts that ran other servers than they may, when ``hypervisors`` were listed."""
        return {
            server.host
            for host in handover.hosts
            for server in self._occupancy.seen(host, hypervisors[host]).servers
            if handover.shared or server.project_id != handover.project_id
        }

    def check(
        self,
        handover: Handover,
        hypervisors: Mapping[str, Hypervisor],
        hosts: Collection[str] | None = None,
        within: Aggregate | None = None,
    ) -> None:
        """Raise if other projects have servers on the hosts, or another aggregate admits them.

        With ``hosts``, servers are looked for on these only; ``within`` as in ``Occupancy.on``.

        Raises:
            HostsBusy: other projects' servers, or servers without slots, are there.
            Conflict: another aggregate admits projects, or a host cannot have slots.
        """
        shared = handover.shared
        asked = handover.hosts if hosts is None else hosts
        for host in asked if shared else ():
            self._slots.check_divisible(host, hypervisors[host])
        occupants = self._occupancy.on(asked, hypervisors, None if shared else within)
        if shared:
            strangers = self._slots.without(occupants, hypervisors)
        else:
            strangers = [o for o in occupants if o.project_id != handover.project_id]
        if strangers:
            lacking = ", which holds no slot" if shared else ""
            raise HostsBusy(f"hosts cannot be handed over: {sentence(strangers)}{lacking}")
        own = aggregate_name(handover.allocation_id)
        if foreign := self.admitting(handover.hosts, own, shared=shared):
            raise Conflict(foreign)

    def admitting(
        self, hosts: Iterable[str], own: str | None = None, *, shared: bool = False
    ) -> str | None:
        """A sentence that names other aggregates that admit projects to these hosts.

        With ``own``, the aggregates of other allocations count too, with ``shared`` only those that
        are not of class ``shared``. The sentence never advises to change these: they protect hosts
        of somebody, also where their allocation is of another fabric or not recorded.
        """
        ours = set(hosts)
        found = [
            (aggregate, f"aggregate {aggregate.name} has {listed(sorted(both))}")
            for name, aggregate in sorted(self._aggregates.present.items())
            if name != own
            and not self._keys.is_part(name)
            and not (own is None and aggregate.is_ours)
            and not (shared and aggregate.is_shared)
            and any(key.startswith(OWNER) for key in aggregate.metadata)
            and (both := aggregate.hosts & ours)
        ]
        owned = [text for aggregate, text in found if ALLOCATION in aggregate.metadata]
        if owned:
            return (
                f"hosts belong to other allocations: {'; '.join(owned)}. Leave these aggregates as "
                "they are; if two fabrics record the same hosts, release the allocations of one of "
                "them, then delete that fabric (laas fabric delete)"
            )
        if foreign := [text for _, text in found]:
            return (
                f"other aggregates with {OWNER} hold our hosts, remove these from them: "
                + "; ".join(foreign)
            )
        return None
