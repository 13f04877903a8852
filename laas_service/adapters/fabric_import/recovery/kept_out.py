# SPDX-License-Identifier: Apache-2.0

"""Machines and adapters that an import keeps out of allocation, by kind."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from laas_service.adapters.fabric_import.recovery.hosts import Adapter, Leaf, Selection
from laas_service.adapters.fabric_import.recovery.levels import natural
from laas_service.adapters.fabric_import.recovery.report import KeptOut, Reason
from laas_service.domain.inventory import HOST_NAME

_WHY = {
    "ambiguous": (
        Reason.AMBIGUOUS,
        "GUIDs show several machines under one name; give each a name of its own",
    ),
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
    "router": (Reason.ROUTER, "leads to another subnet"),
    "gateway": (Reason.GATEWAY, "leads to another network"),
    "aggregation": (Reason.AGGREGATION, "is a part of its switch, and no machine"),
    "service_processor": (
        Reason.SERVICE_PROCESSOR,
        "manages a machine, and is none for tenants; rename it if it is one",
    ),
}


def kept_out(
    adapters: Iterable[Adapter],
    leaf_of: Mapping[int, Leaf],
    selection: Selection,
    beside_managers: Iterable[str],
    offered: Collection[str],
) -> tuple[KeptOut, ...]:
    """What is kept out, in the order of ``_WHY``; adapters of tenants' hosts never are.

    ``beside_managers`` are hosts on a leaf with a subnet manager, ``offered`` the tenants' hosts.
    All adapters of a machine are kept out for the same reason.
    """
    beside = set(beside_managers)
    waiting = [a for a in adapters if not a.host or a.host not in offered]
    above = {a.host for a in waiting if a.host and a.at.guid not in leaf_of}
    found: defaultdict[str, list[Adapter]] = defaultdict(list)
    for adapter in waiting:
        found[_kind(adapter, above, selection, beside)].append(adapter)
    return tuple(_kept(kind, found[kind]) for kind in _WHY if kind in found)


def _kind(adapter: Adapter, above: set[str], selection: Selection, beside: set[str]) -> str:
    host, known = adapter.host, adapter.identity.kept
    if not host:
        return known.value if known else Reason.NAMELESS.value
    if selection.manages(host):
        return "manager"
    if host in beside:
        return "beside"
    if selection.excludes(host):
        return "excluded"
    if known:
        return known.value
    if not HOST_NAME.fullmatch(host):
        return "misnamed"
    return "above" if host in above else "pattern"


def _kept(kind: str, adapters: list[Adapter]) -> KeptOut:
    reason, why = _WHY[kind]
    names = {adapter.host or adapter.name for adapter in adapters}
    guids = sorted(adapter.guid for adapter in adapters)
    return KeptOut(reason, why, tuple(guids), tuple(sorted(names, key=natural)))


NO_CABLE = "no cable leads to a switch; plug it in"
NO_PORT = "the switch has no port of the cable's number, even if each is split; make a new dump"


def unwired(named: Iterable[tuple[int, str]], why: str) -> Iterator[KeptOut]:
    """Adapters without a cable that counts: the GUIDs of their ports or nodes, and their names."""
    found = sorted(named)
    if found:
        guids = tuple(guid for guid, _ in found)
        names = tuple(sorted({name for _, name in found}, key=natural))
        yield KeptOut(Reason.UNWIRED, why, guids, names)
