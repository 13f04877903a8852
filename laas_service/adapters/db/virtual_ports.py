# SPDX-License-Identifier: Apache-2.0

"""The GUIDs of the virtual ports (of virtual functions) behind each port of a host."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.engine import retrying
from laas_service.adapters.db.ledger_cache import LedgerCache
from laas_service.adapters.db.transactions import Transactions, batches, locked_generation
from laas_service.domain.errors import Conflict, InvalidInput, NotFound
from laas_service.domain.grouping import grouped
from laas_service.domain.inventory import Inventory, not_a_guid

UNSET = "give the virtual function a GUID first (ip link set DEVICE vf N port_guid GUID)"


@dataclass
class VirtualPorts:
    """Port GUID -> GUIDs of its virtual ports, ascending."""

    transactions: Transactions
    ledgers: LedgerCache

    def virtual_ports(self, fabric_id: str) -> Mapping[int, tuple[int, ...]]:
        with self.transactions.reading() as session:
            return recorded(session, fabric_id)

    @retrying().wraps
    def set_virtual_ports(self, fabric_id: str, ports: Mapping[int, Sequence[int]]) -> int:
        table = models.VirtualPortRow
        with self.transactions.writing("set virtual ports") as session:
            generation = locked_generation(session, fabric_id)
            inventory = self.ledgers.record(session, fabric_id).inventory
            present = recorded(session, fabric_id)
            changed = {
                port: guids
                for port, guids in ports.items()
                if sorted(guids) != list(present.get(port, ()))
            }
            _check(inventory, changed, {p: g for p, g in present.items() if p not in changed})
            if not changed:
                return generation
            for some in batches(list(changed)):
                of_ports = table.port.in_(map(_text, some))
                session.execute(delete(table).where(table.fabric == fabric_id, of_ports))
            rows = [
                {"fabric": fabric_id, "guid": _text(guid), "port": _text(port)}
                for port, guids in changed.items()
                for guid in guids
            ]
            if rows:
                session.execute(insert(table), rows)
            return self.transactions.advance(session, fabric_id, {}, routes=True)


def recorded(session: Session, fabric_id: str) -> Mapping[int, tuple[int, ...]]:
    """The virtual ports of a fabric, by ascending port GUID."""
    table = models.VirtualPortRow
    query = select(table.port, table.guid).where(table.fabric == fabric_id)
    rows = session.execute(query.order_by(table.port, table.guid))
    ports = grouped((int(row.port, 16), int(row.guid, 16)) for row in rows)
    return {port: tuple(guids) for port, guids in ports.items()}


def _check(
    inventory: Inventory,
    ports: Mapping[int, Collection[int]],
    others: Mapping[int, Collection[int]],
) -> None:
    """Check that these are ports of hosts, and that each GUID names one port of the fabric.

    Raises: NotFound, InvalidInput, Conflict.
    """
    hosts = {endpoint.guid for endpoint in inventory.endpoints if endpoint.host is not None}
    owner = {guid: port for port, guids in others.items() for guid in guids}
    real = {*inventory.switch_of_guid, *(endpoint.guid for endpoint in inventory.endpoints)}
    for port, guids in ports.items():
        if port not in hosts:
            raise NotFound("port of a host", _text(port))
        for guid in guids:
            if (why := not_a_guid(guid)) is not None:
                raise InvalidInput("virtual_guids", _text(guid), f"{why}; {UNSET}")
            if guid in real:
                fix = "it is the GUID of a port or switch; give that of a virtual port"
                raise InvalidInput("virtual_guids", _text(guid), fix)
            if owner.setdefault(guid, port) != port:
                raise Conflict(f"virtual GUID {_text(guid)} belongs to port {_text(owner[guid])}")
        if len(set(guids)) != len(guids):
            raise InvalidInput("virtual_guids", _text(port), "give each GUID once")


def _text(guid: int) -> str:
    return f"{guid:#018x}"
