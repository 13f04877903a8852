# SPDX-License-Identifier: Apache-2.0

"""Why a step of an allocation has to wait: servers that still run, move, stop or start."""

from collections.abc import Sequence

from laas_service.app.lifecycle import AllocationFaults
from laas_service.domain.topology import link_name
from laas_service.domain.wording import listed

LEFT_BEHIND = "servers run on hosts that the allocation leaves"


def not_empty(busy: Sequence[str], kept: Sequence[str], end: str) -> str:
    """Why a release is refused: hosts with servers, and deleted servers that Nova keeps.

    ``end`` says what ends the latter. At least one of them is not empty.
    """
    texts = [f"servers still run on {listed(busy)}; delete them first"] if busy else []
    if kept:
        texts.append(f"{listed(kept)}; {end}")
    return f"{'; '.join(texts)}, or release with force"


def too_few_empty(fewer: int, empty: int, asked: int, busy: Sequence[str]) -> str:
    """Why ``fewer`` hosts cannot be given back: of those ``asked`` for too few are ``empty``."""
    return (
        f"{fewer} hosts without servers are to be given back, and {empty} of {asked} have none; "
        f"delete or move the servers on {fewer - empty} of {listed(busy)}"
    )


def not_left(busy: Sequence[str], under_way: Sequence[str], stuck: Sequence[str]) -> str:
    """Why old hosts cannot be taken back: ``busy`` (names), and what becomes of their servers."""
    texts = [f"servers still run on {listed(busy)}, which the allocation leaves"] if busy else []
    if under_way:
        texts.append(f"under way: {listed(under_way)}")
    if stuck:
        texts.append(f"cannot be moved by the service: {listed(stuck)}")
    if stuck or not under_way:
        texts.append("delete or move them, or ask for the old size again")
    return "; ".join(texts)


def overdue(why: str) -> str:
    """Why a change stays although its time is over: servers are on old and new hosts."""
    return f"the time to empty its old hosts is over, so old and new ones are held: {why}"


def _servers(*groups: tuple[str, Sequence[str]]) -> str:
    """Each group that has servers, with what is said of them and their names."""
    return "; ".join(f"{said}: {listed(servers)}" for said, servers in groups if servers)


def not_settled(under_way: Sequence[str], stuck: Sequence[str]) -> str:
    """Why the old slots are still held."""
    return _servers(("under way", under_way), ("servers are beyond the slots", stuck))


def not_stopped(under_way: Sequence[str], stuck: Sequence[str]) -> str:
    """Why the routes of a change wait: servers that stop, and those that only the owner stops."""
    return _servers(("servers stop", under_way), (LEFT_BEHIND, stuck))


def cut_off(busy: Sequence[str], under_way: Sequence[str], stuck: Sequence[str]) -> str:
    """Why servers on old hosts (``busy``) stop although links joined these to the new ones."""
    text = f"faults cut {listed(busy)} off from the new hosts, so servers there stop"
    state = _servers(("they stop", under_way), (LEFT_BEHIND, stuck))
    return f"{text}; {state or 'delete or move them'}; their owner starts them again afterwards"


def stopped_again(under_way: Sequence[str], stuck: Sequence[str]) -> str:
    """Why a change waits whose servers had stopped."""
    return _servers(("servers were started and stop again", under_way), (LEFT_BEHIND, stuck))


def not_unlocked(stuck: Sequence[str]) -> str:
    """Why a release waits: its owner cannot delete these servers."""
    return f"servers that stopped for a move are still locked: {listed(stuck)}"


def not_started(under_way: Sequence[str], stuck: Sequence[str]) -> str:
    """Why a change waits although the old hosts are empty."""
    return _servers(("servers start again", under_way), ("servers cannot be started again", stuck))


def broken_ahead(faults: AllocationFaults, host_names: Sequence[str]) -> str:
    """Why a change does not go on: failed parts of what it leads to."""
    links, hosts = map(link_name, faults.links), (host_names[host] for host in faults.hosts)
    named = [f"link {name}" for name in links] + [f"host {name}" for name in hosts]
    return f"{listed(named)} failed"


def unread(fabric: str, generation: int) -> str:
    """Why hosts and links are not free although the files that free them are written."""
    return (
        f"held: nobody has read whether the switches run generation {generation}. If they do, "
        f"write {generation} into {fabric}/loaded below [opensm] directory; or let the service "
        "read them ([opensm] dump_command, or an agent)"
    )


def outdated(applied: int, wanted: int) -> str:
    """The switches run a set from before the newest routes and keys of an allocation."""
    return (
        f"not as promised: the switches run generation {applied}, from before its routes and keys "
        f"(generation {wanted}); its packets may be lost or cross links of others until these are "
        "there again"
    )


def not_confirmed(problem: str) -> str:
    """The routes and keys of an allocation were confirmed, and are no longer."""
    return f"its routes and keys are no longer confirmed: {problem}"


def held_for(managers: Sequence[str]) -> str:
    """Why hosts and links are not free although the switches no longer route to them."""
    return (
        f"held: {listed(managers)} could become the master with files from before; the hosts and "
        "links are free once each has the new set. If it is gone for good: "
        + ", ".join(f"'laas manager forget {name}'" for name in managers)
    )
