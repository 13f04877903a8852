# SPDX-License-Identifier: Apache-2.0

"""Checks the partition keys that were read from the ports of a fabric against the record."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from laas_service.domain.allocation import Allocation
from laas_service.domain.inventory import ADAPTER_PORT, Endpoint, Inventory, PortRef
from laas_service.domain.topology import Topology

DEFAULT_KEY = 0x7FFF
MEMBER = 0x8000
"""The bit of a full member."""


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """What was read. ``ports`` has the keys by index of adapters' ports (port GUID,
    ``ADAPTER_PORT``), of switch ports, and of switches themselves (node GUID, ``ADAPTER_PORT``).

    ``open_ports`` are switch ports that could drop packets with foreign keys and do not.
    ``master`` is the port GUID of the master, None if none answered.
    """

    ports: Mapping[PortRef, Sequence[int]]
    open_ports: Collection[PortRef]
    master: int | None


def key_violations(
    topology: Topology,
    inventory: Inventory,
    tenants: Iterable[tuple[Sequence[int], Allocation]],
    read: ReadKeys,
    *,
    managers: Collection[int] = (),
    services: Collection[int] = (),
    pkeys: range,
) -> list[str]:
    """Each port with a key too many, too few or at the wrong index; and a foreign master.

    ``tenants`` are partition keys by rail with all hosts that their tenant may be on.
    ``managers`` are port GUIDs of our subnet managers; without any, each master is ours.
    ``services`` are the port GUIDs of full members of the default partition. Keys outside of
    ``pkeys`` that no tenant has are somebody else's.
    """
    owner = _owners(topology, tenants)
    ours = {*owner.values(), *pkeys}
    full = {*services, *([read.master] if read.master is not None else ())}
    found = []
    if read.master is not None and managers and read.master not in managers:
        found.append(f"the master of the subnet is {read.master:#018x}, which is not ours")
    seen_switches = {port.guid for port in read.ports}
    for switch in inventory.switches:
        if switch.guid not in seen_switches:
            found.append(f"switch {switch.name} ({switch.guid:#018x}) was not read")
        found += _of_switch(switch.guid, read, ours)
    for endpoint in inventory.endpoints:
        key = owner.get((endpoint.host, endpoint.rail))
        defaults = [DEFAULT_KEY | MEMBER] if endpoint.guid in full else [DEFAULT_KEY]
        if endpoint.guid in managers and endpoint.guid != read.master:
            defaults = [DEFAULT_KEY, DEFAULT_KEY | MEMBER]  # it was the master, or will be
        found += _of_endpoint(endpoint, key, read, ours, defaults)
    return found


def function_violations(
    topology: Topology,
    inventory: Inventory,
    tenants: Iterable[tuple[Sequence[int], Allocation]],
    virtual_guids: Mapping[int, Collection[int]],
    tables: Mapping[int, Sequence[int]],
    *,
    pkeys: range,
) -> list[str]:
    """What is wrong in the keys that functions of hosts have themselves, virtual ones included.

    ``tables`` are keys by index of the port with each GUID, physical or virtual. ``tenants`` and
    ``pkeys`` are as for ``key_violations``, ``virtual_guids`` as for ``partition_violations``. A
    function of a tenant's host needs the tenant's key, as a full member and at index 0. None
    may have another tenant's key, or be a full member of the default partition; a GUID that is
    not recorded is nobody's. A virtual port need not have the default key.
    """
    owner = _owners(topology, tenants)
    ours = {*owner.values(), *pkeys}
    physical = {end.guid: end for end in inventory.endpoints}
    behind = {guid: port for port, guids in virtual_guids.items() for guid in guids}
    found = []
    for guid, keys in sorted(tables.items()):
        endpoint = physical.get(behind.get(guid, guid))
        kind = "function" if guid in physical else "virtual port"
        if endpoint is None:
            where, own, defaults = f"function {guid:#018x}, which is not recorded,", None, True
        else:
            where = f"{kind} {guid:#018x} of {endpoint.name}"
            own = owner.get((endpoint.host, endpoint.rail))
            defaults = endpoint.host is None
        if own is not None and keys[0] != own | MEMBER:
            found.append(f"{where} has key {keys[0]:#06x} at index 0, not {own | MEMBER:#06x}")
        for key in sorted({*keys} - {0}):
            number = key & ~MEMBER
            if (number in ours and number != own) or (key == DEFAULT_KEY | MEMBER and not defaults):
                found.append(f"{where} has key {key:#06x}, which is not its own")
    return found


def partition_violations(
    topology: Topology,
    inventory: Inventory,
    tenants: Iterable[tuple[Sequence[int], Allocation]],
    virtual_guids: Mapping[int, Collection[int]],
    text: str,
) -> list[str]:
    """What is wrong in a published ``partitions.conf``: members too many or too few.

    ``tenants`` are as for ``key_violations``, ``virtual_guids`` the virtual ports that the file
    has to list, by the GUID of the port behind which they are.
    """
    desired: dict[int, set[int]] = {}
    ports = {(e.host, e.rail): e.guid for e in inventory.endpoints if e.host is not None}
    for keys, placed in tenants:
        for rail, key in enumerate(keys):
            for host in placed.hosts(topology):
                port = ports[host, rail]
                desired.setdefault(key, set()).update((port, *virtual_guids.get(port, ())))
    listed: dict[int, list[int]] = {}
    for key, members in re.findall(r"=(0x[0-9a-f]+)[^:;]*:([^;]*);", text):
        if int(key, 16) != DEFAULT_KEY:
            guids = [int(guid, 16) for guid in re.findall(r"0x[0-9a-f]+", members)]
            listed.setdefault(int(key, 16), []).extend(guids)
    found = []
    for key in sorted(desired.keys() | listed.keys()):
        wanted, given = desired.get(key, set()), listed.get(key, [])
        for guid in sorted(wanted.difference(given)):
            found.append(f"the partition with key {key:#06x} lacks port {guid:#018x}")
        for guid in sorted(set(given) - wanted):
            found.append(f"the partition with key {key:#06x} lists port {guid:#018x} of others")
    return found


def _owners(
    topology: Topology, tenants: Iterable[tuple[Sequence[int], Allocation]]
) -> Mapping[tuple[int | None, int], int]:
    """The tenant's key of each host and rail that has one."""
    return {
        (host, rail): key
        for keys, placed in tenants
        for host in placed.hosts(topology)
        for rail, key in enumerate(keys)
    }


def _of_switch(guid: int, read: ReadKeys, ours: Collection[int]) -> Iterator[str]:
    keys = read.ports.get(PortRef(guid, ADAPTER_PORT), ())
    for key in keys:
        if key & ~MEMBER in ours:
            yield f"switch {guid:#018x} itself has key {key:#06x} of tenants"


def _of_endpoint(
    endpoint: Endpoint,
    own: int | None,
    read: ReadKeys,
    ours: Collection[int],
    defaults: Sequence[int],
) -> Iterator[str]:
    """The adapter's port, and the switch port in front of it, with one of the default keys."""
    adapter = PortRef(endpoint.guid, ADAPTER_PORT)
    for port in (adapter, endpoint.at):
        keys = read.ports.get(port)
        if keys is None:
            continue
        where = f"{endpoint.name} ({endpoint.guid:#018x})"
        if port != adapter:
            where = f"port {port.port} of switch {port.guid:#018x} in front of {where}"
        default = next((key for key in defaults if key in keys), defaults[0])
        needed = [default] if own is None else [own | MEMBER, default]
        for key in needed:
            if key not in keys:
                yield f"{where} lacks key {key:#06x}"
        for key in keys:
            number = key & ~MEMBER
            if key and key not in needed and (number == DEFAULT_KEY or number in ours):
                yield f"{where} has key {key:#06x}, which is not its own"
        if port == adapter and keys and own is not None and keys[0] != needed[0]:
            yield f"{where} has key {keys[0]:#06x} at index 0, not {needed[0]:#06x}"
        if port in read.open_ports:
            yield f"{where} lets packets with foreign keys pass"
