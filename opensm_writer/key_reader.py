# SPDX-License-Identifier: Apache-2.0

"""``laas-opensm-keys``: prints the partition keys of all recorded ports, and the master.

Reads the devices themselves, not OpenSM's memory, with about six packets for each host
port, and a seventh if there is an M_Key.
``keys`` describes and parses the output.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

from laas_service.domain.errors import LaasError, Unavailable
from laas_service.domain.inventory import ADAPTER_PORT, CableEnds, PortRef
from laas_service.domain.routing.default_tables import NO_ROUTE
from laas_service.version import ShowVersion
from opensm_writer import directed, parse, smp
from opensm_writer.desired import BLOCK as BLOCK_OF_LIDS
from opensm_writer.keys import BLOCK, Enforcement, KeyReading, Manager, PortKeys, lines
from opensm_writer.site import read_key
from opensm_writer.smp import Query, SmpPort

_ACTIVE = 4  # PortState


def read(port: SmpPort, directory: Path, *, master_only: bool = False) -> KeyReading:
    """The keys of the ports in the set of files in ``directory``, as the devices answer.

    Ports that are not active, or do not answer, are left out. With ``master_only`` all are.

    Raises:
        InvalidFile, OSError: the set cannot be read.
        Unavailable: the port of this machine does not answer, or too few ports do within the
            limit of ``port``.
    """
    if master_only:
        return _KeyReader(port, {}, ()).reading()
    lids = parse.guid2lid((directory / "guid2lid").read_text(), "guid2lid")
    cables = parse.cabling((directory / "cabling").read_text(), "cabling")
    return _KeyReader(port, lids, cables).reading()


class _OwnPort(NamedTuple):
    """The port of this machine: GUID, number, the LID of the master that it knows, and LMC."""

    guid: int
    number: int
    master: int
    lmc: int

    @classmethod
    def read(cls, port: SmpPort) -> Self:
        """Raises: Unavailable."""
        first = [Query(0, smp.PORT_INFO), Query(0, smp.NODE_INFO)]
        own = port.all_answers(first)
        if len(own) < len(first):
            raise Unavailable("the port of this machine does not answer")
        port_info, node_info = own[first[0]], own[first[1]]
        guid = int.from_bytes(node_info[20:28], "big")
        master = int.from_bytes(port_info[18:20], "big")
        return cls(guid, port_info[28], master, port_info[34] & 7)


def ask_directly(port: SmpPort, directory: Path, lids: Collection[int]) -> None:
    """Have ``port`` ask those of ``lids`` to which it has no route by directed routes.

    The routes lead over the cables of the set of files in ``directory``, as those of ``read``.

    Raises:
        InvalidFile, OSError: the set cannot be read.
        Unavailable: the port of this machine does not answer.
    """
    recorded = parse.guid2lid((directory / "guid2lid").read_text(), "guid2lid")
    cables = parse.cabling((directory / "cabling").read_text(), "cabling")
    nodes = {guid for guid, lid in recorded.items() if lid in lids}
    _direct(port, _OwnPort.read(port), recorded, cables, nodes)


def _direct(
    port: SmpPort,
    own: _OwnPort,
    lids: dict[int, int],
    cables: Collection[CableEnds],
    nodes: Collection[int],
) -> None:
    """Find directed routes to those of ``nodes`` without an entry in the table of our switch.

    A manager on a spine may have no route to some switches by their LIDs. ``nodes`` are GUIDs.
    """
    at = next((at for at, end in cables if end == PortRef(own.guid, ADAPTER_PORT)), None)
    if at is None:
        return
    home = lids[at.guid]
    entries = {
        guid: Query(home, smp.FORWARDING_TABLE, lids[guid] // BLOCK_OF_LIDS) for guid in nodes
    }
    table = port.all_answers(sorted(set(entries.values())))
    left = {
        guid
        for guid, query in entries.items()
        if query in table and table[query][lids[guid] % BLOCK_OF_LIDS] == NO_ROUTE
    }
    avoided: set[CableEnds] = set()
    for _ in range(smp.GIVE_UP):
        ways = directed.ways(cables, at.guid, left, avoided)
        for guid, way in ways.items():
            port.ask_by(lids[guid], bytes([0, own.number, *(out for out, _ in way)]))
        queries = {guid: Query(lids[guid], smp.NODE_INFO) for guid in ways}
        answers = port.all_answers(queries.values())
        left = {guid for guid, query in queries.items() if query not in answers}
        used = {cable for guid in ways.keys() - left for _, cable in ways[guid]}
        asked = {cable for guid in left for _, cable in ways[guid]}
        avoided |= {cable for cable in asked - used if cable[1].port != ADAPTER_PORT}


def _explore(
    port: SmpPort, own: _OwnPort, lids: dict[int, int], cables: Collection[CableEnds]
) -> set[int]:
    """Have ``port`` ask every node by a directed route over switches that answer; their LIDs.

    Asks each switch over a neighbour that has answered, at most ``smp.GIVE_UP`` neighbours. So a
    dead switch costs the time of a few packets, however many tables lead over it.
    """
    onward: dict[int, list[tuple[int, PortRef]]] = defaultdict(list)
    for first, second in cables:
        onward[first.guid].append((first.port, second))
        if second.port != ADAPTER_PORT:
            onward[second.guid].append((second.port, first))
    start = next((at for at, end in cables if end == PortRef(own.guid, ADAPTER_PORT)), None)
    if start is None:
        return set()
    routes, tries = {start.guid: bytes([0, own.number])}, Counter[int]()
    port.ask_by(lids[start.guid], routes[start.guid])
    adapters = set[int]()
    reached, tried = [start.guid], set[tuple[int, int]]()  # switches; a switch and its port
    while reached:
        wanted: dict[int, bytes] = {}
        for guid in reached:
            for out, end in onward[guid]:
                route = routes[guid] + bytes([out])
                if end.port == ADAPTER_PORT:
                    port.ask_by(lids[end.guid], route)
                    adapters.add(lids[end.guid])
                elif end.guid in routes or end.guid in wanted or (guid, out) in tried:
                    continue
                elif tries[end.guid] < smp.GIVE_UP:
                    wanted[end.guid] = route
                    tried.add((guid, out))
        tries.update(wanted.keys())
        for guid, route in wanted.items():
            port.ask_by(lids[guid], route)
        queries = {Query(lids[guid], smp.NODE_INFO): guid for guid in wanted}
        answered = {queries[query] for query in port.all_answers(queries)}
        routes |= {guid: wanted[guid] for guid in answered}
        silent = wanted.keys() - answered
        again = {guid for guid in reached if any(end.guid in silent for _, end in onward[guid])}
        reached = [*answered, *again] if wanted else []
    return adapters | {lids[guid] for guid in routes}


class _KeyReader:
    """Reads the ports at both ends of ``cables``."""

    def __init__(self, port: SmpPort, lids: dict[int, int], cables: Collection[CableEnds]) -> None:
        self._port, self._lids, self._cables = port, lids, cables
        # the adapter behind each switch port that has one
        self._behind = {first: second for first, second in cables if second.port == ADAPTER_PORT}
        self._switches = {end.guid for cable in cables for end in cable if end.port}
        self._explored = False  # directed routes were looked for

    def reading(self) -> KeyReading:
        own = _OwnPort.read(self._port)
        manager = self._manager(own.master)
        nodes = self._switches | {adapter.guid for adapter in self._behind.values()}
        _direct(self._port, own, self._lids, self._cables, nodes)
        return KeyReading(own.guid, manager, {p.port: p for p in self._ports(own)}, own.lmc)

    def _answers(self, own: _OwnPort, queries: Iterable[Query]) -> dict[Query, bytes]:
        """The answers by request. As soon as a node is silent, all are asked by directed routes.

        While a cable or a switch is dead, tables lead over it until the service has published
        others. The keys have to be read in this time too: no step of a repair goes on unconfirmed.
        """
        asked = list(queries)

        def while_all_answer() -> Iterator[Query]:
            for query in asked:
                if self._explored or not self._port.silent:
                    yield query

        answers = dict(self._port.all_answers(while_all_answer()))
        if self._explored or not self._port.silent:
            return answers
        self._explored = True
        lids = _explore(self._port, own, self._lids, self._cables)
        left = [query for query in asked if query not in answers and query.lid in lids]
        return answers | dict(self._port.all_answers(left))

    def _manager(self, lid: int) -> Manager | None:
        """The master that the port of this machine knows; None if it does not answer."""
        answers = self._port.all_answers([Query(lid, smp.SM_INFO)]) if lid else {}
        for data in answers.values():
            guid, last = int.from_bytes(data[:8], "big"), data[20]
            return Manager(guid, lid, last >> 4, last & 0xF)
        return None

    def _ports(self, own: _OwnPort) -> Iterator[PortKeys]:
        by_lid = {self._lids[guid]: guid for guid in self._switches}
        queries = [Query(lid, kind) for lid in by_lid for kind in (smp.NODE_INFO, smp.SWITCH_INFO)]
        queries += [Query(self._lids[at.guid], smp.PORT_INFO, at.port) for at in self._behind]
        answers = self._answers(own, queries)
        known = {
            lid: int.from_bytes(answers[Query(lid, smp.NODE_INFO)][12:20], "big")
            for lid in by_lid
            if Query(lid, smp.NODE_INFO) in answers
        }
        tables: dict[tuple[int, int], tuple[PortRef, Enforcement, int]] = {}
        adapters = []
        for at, adapter in self._behind.items():
            lid = self._lids[at.guid]
            info = answers.get(Query(lid, smp.PORT_INFO, at.port))
            capability = answers.get(Query(lid, smp.SWITCH_INFO))
            if info is None or info[32] & 0xF != _ACTIVE or capability is None or lid not in known:
                continue
            size = int.from_bytes(capability[14:16], "big")
            place = PortRef(known[lid], at.port)
            tables[lid, at.port] = place, _enforcement(info, capability), size
            adapters.append(self._lids[adapter.guid])
        nodes = self._answers(own, (Query(lid, smp.NODE_INFO) for lid in adapters))
        for (lid, _, _), data in nodes.items():
            guid, size = int.from_bytes(data[20:28], "big"), int.from_bytes(data[28:30], "big")
            tables[lid, ADAPTER_PORT] = PortRef(guid, ADAPTER_PORT), Enforcement.NONE, size
        for lid, guid in known.items():
            size = int.from_bytes(answers[Query(lid, smp.NODE_INFO)][28:30], "big")
            tables[lid, ADAPTER_PORT] = PortRef(guid, ADAPTER_PORT), Enforcement.NONE, size
        yield from self._tables(tables)

    def _tables(
        self, tables: dict[tuple[int, int], tuple[PortRef, Enforcement, int]]
    ) -> Iterator[PortKeys]:
        queries = [
            Query(lid, smp.PKEY_TABLE, number << 16 | block)
            for (lid, number), (_, _, size) in tables.items()
            for block in range(-(-size // BLOCK))
        ]
        answers = self._port.all_answers(queries)
        guards = self._guards(tables)
        for (lid, number), (port, enforcement, size) in tables.items():
            blocks = [
                answers.get(Query(lid, smp.PKEY_TABLE, number << 16 | block))
                for block in range(-(-size // BLOCK))
            ]
            if None in blocks:
                continue
            data = b"".join(block for block in blocks if block is not None)
            keys = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
            while keys and not keys[-1]:
                keys.pop()
            guard = guards.get(lid) if number == ADAPTER_PORT else None
            yield PortKeys(port, enforcement, tuple(keys), guard)

    def _guards(self, ports: Iterable[tuple[int, int]]) -> dict[int, int]:
        """LID -> ``PortKeys.protection`` of adapters and switches; empty without an M_Key."""
        if not self._port.mkey:
            return {}
        lids = {lid for lid, number in ports if number == ADAPTER_PORT}
        answers = self._port.all_answers(Query(lid, smp.PORT_INFO) for lid in lids)
        return {query.lid: _guard(data, self._port.mkey) for query, data in answers.items()}


def _guard(port_info: bytes, mkey: int) -> int:
    """The protection level of a port with this M_Key; -1 if it has another one, or none."""
    return port_info[34] >> 6 if int.from_bytes(port_info[:8], "big") == mkey else -1


def _enforcement(port_info: bytes, switch_info: bytes) -> Enforcement:
    """Whether a switch port checks keys in both directions, if its switch can."""
    if switch_info[16] & 0xC0 != 0xC0:
        return Enforcement.NONE
    return Enforcement.ON if port_info[43] & 0x0C == 0x0C else Enforcement.OFF


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0, or 2 if nothing could be read."""
    parser = argument_parser()
    options = parser.parse_args(arguments)
    try:
        port = opened(options)
        with closing(port):
            reading = read(port, options.directory, master_only=options.master_only)
    except (LaasError, OSError) as error:
        print(f"laas-opensm-keys: {error}", file=sys.stderr)
        return 2
    if port.silent:
        print(f"laas-opensm-keys: {smp.unanswered(port.silent)}", file=sys.stderr)
    sys.stdout.writelines(lines(reading))
    return 0


def argument_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="laas-opensm-keys",
        description="Print the partition keys of all recorded ports, and the master.",
    )
    parser.add_argument("--version", action=ShowVersion)
    parser.add_argument("directory", type=Path, help="the published set: DIRECTORY/FABRIC/current")
    parser.add_argument("--master-only", action="store_true", help="print no keys")
    add_port_arguments(parser)
    return parser


def add_port_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ``opened`` needs."""
    parser.add_argument("--ca", default="", help="channel adapter; default: the first active")
    parser.add_argument("--port", type=int, default=0, help="its port; default: the first active")
    parser.add_argument("--timeout", type=float, default=1.0, help="seconds for each packet")
    parser.add_argument(
        "--limit", type=float, default=50.0, help="seconds for everything; then it fails"
    )
    parser.add_argument("--outstanding", type=int, default=2, help="packets under way at once")
    parser.add_argument(
        "--mkey-file",
        type=Path,
        help="file with the fabric's M_Key, such as 0x1b; only its owner may read it",
    )


def opened(options: argparse.Namespace) -> SmpPort:
    """The port that the command line names. Raises: InvalidInput, OSError, Unavailable."""
    return SmpPort(
        options.ca,
        options.port,
        read_key(options.mkey_file, "--mkey-file") if options.mkey_file else 0,
        options.outstanding,
        options.timeout,
        limit=options.limit,
    )


if __name__ == "__main__":
    sys.exit(main())
