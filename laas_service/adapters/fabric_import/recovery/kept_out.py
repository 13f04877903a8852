# SPDX-License-Identifier: Apache-2.0

"""Machines and adapters that an import keeps out of allocation, by kind."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from laas_service.adapters.fabric_import.ibnetdiscover import Kind
from laas_service.adapters.fabric_import.recovery.hosts import (
    Adapter,
    Leaf,
    Selection,
    TenantHosts,
)
from laas_service.adapters.fabric_import.recovery.levels import natural
from laas_service.adapters.fabric_import.recovery.report import KeptOut, Reason
from laas_service.domain.inventory import HOST_NAME

_WHY = {
    "router": (Reason.ROUTER, "leads to another subnet"),
    "aggregation": (Reason.AGGREGATION, "is a part of its switch, and no machine"),
    "nameless": (
        Reason.NAMELESS,
        "the description names no machine; start rdma-ndd there, or set the node description",
    ),
    "misnamed": (
        Reason.NAMELESS,
        "compute refuses the name; rename the machine (A-Z a-z 0-9 . _ -, no - in front)",
    ),
    "manager": (Reason.SUBNET_MANAGER, "--subnet-manager names it"),
    "beside": (
        Reason.SUBNET_MANAGER,
        "shares a leaf with a subnet manager, which has routes between all rails; --include NAME "
        "offers it nevertheless",
    ),
    "excluded": (Reason.EXCLUDED, "--exclude names it; --include NAME offers it"),
    "above": (Reason.SERVICE, "is plugged in above the leaves; to offer it, plug it into a leaf"),
    "pattern": (
        Reason.SERVICE,
        "is on other leaves than the rails of most hosts need; to offer it, cable it as they are",
    ),
}


def kept_out(
    adapters: Iterable[Adapter],
    leaf_of: Mapping[int, Leaf],
    selection: Selection,
    beside_managers: Iterable[str],
    tenants: TenantHosts,
) -> tuple[KeptOut, ...]:
    """What is kept out, in the order of ``_WHY``; adapters of tenants' hosts never are.

    ``beside_managers`` are hosts on a leaf with a subnet manager.
    """
    offered, beside = {host[0].host for host in tenants.hosts}, set(beside_managers)
    found: defaultdict[str, list[Adapter]] = defaultdict(list)
    for adapter in adapters:
        if not adapter.host or adapter.host not in offered:
            found[_kind(adapter, leaf_of, selection, beside)].append(adapter)
    return tuple(_kept(kind, found[kind]) for kind in _WHY if kind in found)


def _kind(
    adapter: Adapter, leaf_of: Mapping[int, Leaf], selection: Selection, beside: set[str]
) -> str:
    host = adapter.host
    if adapter.kind is Kind.ROUTER:
        return "router"
    if adapter.aggregation:
        return "aggregation"
    if not host:
        return "nameless"
    if selection.manages(host):
        return "manager"
    if host in beside:
        return "beside"
    if selection.excludes(host):
        return "excluded"
    if not HOST_NAME.fullmatch(host):
        return "misnamed"
    return "above" if adapter.at.guid not in leaf_of else "pattern"


def _kept(kind: str, adapters: list[Adapter]) -> KeptOut:
    reason, why = _WHY[kind]
    names = {adapter.host or adapter.name for adapter in adapters}
    guids = sorted(adapter.guid for adapter in adapters)
    return KeptOut(reason, why, tuple(guids), tuple(sorted(names, key=natural)))


def unwired(named: Iterable[tuple[int, str]]) -> Iterator[KeptOut]:
    """Adapters without a cable: the GUIDs of their nodes, and their names."""
    found = sorted(named)
    if found:
        why = "no cable leads to a switch; plug it in"
        guids = tuple(guid for guid, _ in found)
        names = tuple(sorted({name for _, name in found}, key=natural))
        yield KeptOut(Reason.UNWIRED, why, guids, names)
