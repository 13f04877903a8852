# SPDX-License-Identifier: Apache-2.0

"""Reasons in the history of an allocation: why it changed its state or its placement."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from laas_service.app.lifecycle import Action, Change, Phase
from laas_service.domain.allocation import Allocation
from laas_service.domain.moves.consent import Movable
from laas_service.domain.tenancy import Container, Kind, Owned, SharedHosts, Slots
from laas_service.domain.topology import Link, Topology, link_name
from laas_service.domain.wording import listed
from laas_service.messages import ConfirmedBy

CONFIRMATION: Mapping[ConfirmedBy, str] = {
    ConfirmedBy.SWITCHES: "confirmed in the switches",
    ConfirmedBy.AGENT: "confirmed by the agent beside OpenSM",
    ConfirmedBy.UFM: "written, partitions confirmed by UFM",
    ConfirmedBy.FILES: "written, nobody read the switches",
    ConfirmedBy.NOBODY: "written, no subnet manager is configured",
}
"""What is known of new routes, or of a withdrawal of routes, by what they are confirmed by."""

RESIZE_REASON = "resize from "
"""The beginning of every ``resize_reason``."""

HANDED_BACK_REASON = "its routes are to be withdrawn"


def standing_reason(by: ConfirmedBy) -> str:
    """``by`` read that the switches have the routes, before the sweep for its keys."""
    return f"its routes stand already, {CONFIRMATION[by]}; its partition key follows"


def active_reason(by: ConfirmedBy, kind: Kind, *, scripted: bool, claimed: bool = False) -> str:
    """``by`` confirmed the routes. With ``scripted`` an operator hands hosts over by a script.

    With ``claimed`` compute keeps servers to slots of shared hosts.
    """
    match kind:
        case Slots() if claimed:
            hosts = "slots set in placement; bandwidth is accounted, not enforced"
        case Slots():
            hosts = "slots and bandwidth are accounted, not enforced"
        case Container() | SharedHosts():
            hosts = "hosts stay in the pool, for allocations inside"
        case Owned() if scripted:
            hosts = "script that hands the hosts over written, nobody checked that it was run"
        case Owned():
            hosts = "hosts handed over"
    return f"routes {CONFIRMATION[by]}; {hosts}"


def freed_reason(by: ConfirmedBy, kind: Kind, *, scripted: bool) -> str:
    """``by`` confirmed the withdrawal of the routes; the rest as for ``active_reason``."""
    match kind:
        case Slots():
            return "slots and bandwidth given back"
        case Container() | SharedHosts():
            hosts = "hosts stayed in the pool"
        case Owned() if scripted:
            hosts = "script that takes the hosts back written, nobody checked that it was run"
        case Owned():
            hosts = "hosts taken back"
    return f"{hosts}; withdrawal of the routes {CONFIRMATION[by]}"


def queued_reason(refusal: str) -> str:
    return f"waits: {refusal}"


def unusable_reason(hosts: str) -> str:
    return f"placed anew, because hosts cannot be used: {hosts}; its routes are to be withdrawn"


def requeued_reason(by: ConfirmedBy) -> str:
    return f"withdrawal of the routes {CONFIRMATION[by]}; waits for other hosts"


def unchecked_remark(project: str) -> str:
    """What is added to the first reason of an allocation for a project named by others."""
    return f"; nobody checked that project {project} exists"


def claimed_reason(hosts: int, partitions: int = 1) -> str:
    """``partitions`` are more than one if the allocation's links do not join its rails."""
    apart = f"; its links do not join its rails, so they have {partitions} partition keys"
    return f"claimed {hosts} hosts" + (apart if partitions > 1 else "")


def slots_reason(placed: Allocation) -> str:
    """Slots of shared hosts were claimed."""
    slots = placed.held_slots
    hosts = len(slots.units)
    return f"claimed {slots.demand.slots} slots on {hosts} shared hosts of {placed.parent}"


def slot_change_reason(old: Allocation, new: Allocation, named: Sequence[str], user: str) -> str:
    """``user`` asked for other slots; ``named`` are the moves."""
    was, now = old.held_slots.demand, new.held_slots.demand
    text = f"{was.slots} slots of {was.range} to {now.slots} of {now.range}"
    return f"{text} asked for by {user}: {listed(named) if named else 'nothing moves'}"


def limited_reason(by: str | None) -> str:
    """What its servers send is limited ``by`` something from now on; None: by nothing."""
    if by == "neutron":
        return "what servers send is limited by Neutron; what they receive is not"
    if by is None:
        return "what servers send is not limited any more: accounted, not enforced"
    return "commands that limit what servers send written, nobody checked that they were run"


def settled_reason(change: Change) -> str:
    """The slots of a change are set in compute, and no server is beyond them."""
    return f"{change.new.held_slots.demand.slots} slots set; no server is beyond them"


def cancelled_reason(user: str) -> str:
    return f"cancelled by {user}"


def release_reason(user: str, *, force: bool) -> str:
    return f"{'forced release' if force else 'release'} asked for by {user}"


def retry_reason(user: str) -> str:
    return f"retry asked for by {user}"


def renamed_reason(name: str) -> str:
    """``name`` is the old one."""
    return f"renamed from {name!r}"


def prioritized_reason(priority: int) -> str:
    return f"its priority in the queue is {priority} now"


def parked_reason(tries: int, why: str) -> str:
    return f"parked after {tries} tries of its step: {why}"


def hosts_repaired_reason(difference: str) -> str:
    return f"repaired: {difference}"


def strangers_reason(servers: str, *, closed: bool) -> str:
    """``servers`` are those of other projects; with ``closed`` no new ones start beside them."""
    effect = "; these hosts accept no new server until they are gone" if closed else ""
    return f"servers of other projects on its hosts: {servers}{effect}"


def step_reason(
    change: Change, topology: Topology, by: ConfirmedBy, *, scripted: bool = False
) -> str:
    """The present step of a change is over; ``by`` confirmed its routes.

    With ``scripted`` an operator hands hosts over and takes them back by a script.
    """
    text = _mended(change.mending.phase, by) if change.mending else _over(change, topology, by)
    unchecked = scripted and change.step.action is not Action.PROCEED
    return f"{text}; by a script, nobody checked that it was run" if unchecked else text


def _mended(phase: Phase, by: ConfirmedBy) -> str:
    match phase:
        case Phase.PREPARE:
            return f"routes over the links in place of failed ones {CONFIRMATION[by]}"
        case Phase.SWITCH:
            return f"routes that use the links in place of failed ones {CONFIRMATION[by]}"
        case _:
            return f"withdrawal of routes over failed links {CONFIRMATION[by]}; the change goes on"


def _over(change: Change, topology: Topology, by: ConfirmedBy) -> str:
    if change.step.action is Action.SETTLE:
        return f"{_moves(change)} counted as done; nobody checked that virtual machines moved"
    match change.phase:
        case Phase.STOP:
            return f"no server runs on the {_hosts(change.freed)} that leave; the routes change"
        case Phase.PREPARE:
            return f"routes over the new links {CONFIRMATION[by]}; traffic goes over to them"
        case Phase.SWITCH:
            next = "the hosts change" if _changes_hosts(change) else "the old routes have to go"
            return f"routes that move the traffic to the new links {CONFIRMATION[by]}; {next}"
        case Phase.ENTER:
            return f"{_hosts(change.claimed)} handed over"
        case Phase.LEAVE:
            return f"{_hosts(change.freed)} taken back; their routes have to go"
        case Phase.WITHDRAW:
            freed = _freed_named(change, topology)
            return f"withdrawal of the old routes {CONFIRMATION[by]}; freed {freed}"


def _moves(change: Change) -> str:
    moves = change.new.unit_moves
    return f"{len(moves)} {'move' if len(moves) == 1 else 'moves'}"


def _changes_hosts(change: Change) -> bool:
    return bool(change.claimed.size or change.freed.size)


def _hosts(placement: Allocation) -> str:
    return f"{placement.size} {'host' if placement.size == 1 else 'hosts'}"


def _freed_named(change: Change, topology: Topology) -> str:
    """The hosts and links that a change frees; "nothing" if it frees none."""
    links = list(change.freed.links(topology))
    named = [_hosts(change.freed)] if change.freed.size else []
    named += [links_named(links, topology)] if links else []
    return " and ".join(named) or "nothing"


def resize_reason(change: Change, user: str) -> str:
    """``user`` asked for the change of size."""
    old, new = change.old.requested, change.new.requested
    parts = [
        f"{_hosts(part)} {verb}"
        for part, verb in ((change.claimed, "join"), (change.freed, "leave"))
        if part.size
    ]
    return f"{RESIZE_REASON}{old} to {new} hosts asked for by {user}: {', '.join(parts) or 'links'}"


def resized_from(reason: str) -> int | None:
    """The number of hosts before a resize, by its ``resize_reason``; None for other reasons."""
    number = reason.removeprefix(RESIZE_REASON).partition(" ")[0]
    return int(number) if reason.startswith(RESIZE_REASON) and number.isdigit() else None


def replacement_reason(change: Change, user: str, movable: Movable) -> str:
    """``user`` asked for other hosts in place of some."""
    return f"other hosts asked for by {user}: {_exchange(change, movable)}"


def _exchange(change: Change, movable: Movable) -> str:
    """The hosts that change; with ``NEVER`` the owner is asked to empty those that leave."""
    text = f"{_hosts(change.claimed)} join, {_hosts(change.freed)} leave"
    if movable is not Movable.NEVER:
        return text
    return f"{text}; empty these once the others are handed over"


def announced_reason(
    old: Allocation, new: Allocation, why: str, begins: str, user: str, *, forced: bool
) -> str:
    """``user`` asked for the move; ``why`` goes behind "a move", like "off drained hosts"."""
    left, joined = old.beyond(new), new.beyond(old)
    what = f"{_hosts(left)} leave, {_hosts(joined)} join" if left.size else "links alone"
    if not new.kind.whole_hosts:
        what = f"{units_named(len(new.unit_moves))} to other shared hosts"
    objection = "no consent is needed" if forced else "movable = never calls it off until then"
    return f"a move {why} is announced by {user} for {begins} or later: {what}; {objection}"


QUEUE = "the queue"
"""What announces a move that makes room for the head of a queue, in place of a user."""


def room_reason(tenants: int, hosts: int) -> str:
    """``tenants`` move for the head of a queue, to ``hosts`` new hosts."""
    moved = "1 allocation moves" if tenants == 1 else f"{tenants} allocations move"
    what = f"{hosts} new {'host' if hosts == 1 else 'hosts'}" if hosts else "other links alone"
    return f"room is made for it: {moved}, to {what}"


def no_room_reason(why: str) -> str:
    return f"no room is made for it: {why}"


def units_named(units: int) -> str:
    return "1 virtual machine moves" if units == 1 else f"{units} virtual machines move"


def moved_reason(change: Change, movable: Movable) -> str:
    """The move that was announced begins."""
    if not change.new.kind.whole_hosts:
        return f"moves as announced: {units_named(len(change.new.unit_moves))}"
    if not _changes_hosts(change):
        return "moves as announced: links alone, servers run on"
    return f"moves as announced: {_exchange(change, movable)}"


def bridge_remark(change: Change, topology: Topology) -> str:
    """What is added about packets between old and new hosts; empty if no links are claimed."""
    if change.parted:
        text = "no free links join old and new hosts, so servers stop before they leave"
        return f"; {text}"
    links = [] if change.bridge is None else list(change.bridge.links(topology))
    joins = "joins" if len(links) == 1 else "join"
    return f"; {links_named(links, topology)} {joins} old and new hosts meanwhile" if links else ""


def servers_go_remark(hosts: int, *, live: bool) -> str:
    """What is added where new hosts are handed over and the service empties ``hosts`` old ones."""
    how = "those that run need not stop" if live else "they stop meanwhile"
    return f"; the service moves the servers of {hosts} hosts to them, and {how}"


def arrived_reason(servers: Sequence[str]) -> str:
    """``servers`` were moved by the service."""
    return f"moved: {listed(servers)}"


def not_moved_reason(why: str) -> str:
    return f"the announced move is called off: {why}"


def consent_reason(movable: str, user: str) -> str:
    return f"movable is {movable} from now on, as {user} asked"


def turned_back_reason(why: str) -> str:
    return f"the change of placement turns back: {why}"


def called_off_reason(user: str) -> str:
    return turned_back_reason(f"called off by {user}")


def window_over_reason(busy: str) -> str:
    return turned_back_reason(f"the time to empty its old hosts is over: {busy}")


def unusable_joining_reason(hosts: str) -> str:
    return turned_back_reason(f"the new placement cannot be used: {hosts}")


def link_repair_reason(change: Change, topology: Topology) -> str:
    failed = links_named(change.freed.links(topology), topology)
    return f"repair: {failed} replaced by {links_named(change.claimed.links(topology), topology)}"


def mend_reason(change: Change, topology: Topology) -> str:
    """Links of a change of hosts have failed, and others take their place."""
    before = replace(change, mending=None).held
    failed = links_named(before.beyond(change.mended.held).links(topology), topology)
    taken = links_named(change.held.beyond(before).links(topology), topology)
    return f"repair while hosts change: {failed} replaced by {taken}"


def links_named(links: Iterable[Link], topology: Topology) -> str:
    """Links by name in the order of their numbers, the first few of many."""
    names = [link_name(link) for link in sorted(links, key=topology.tree.link_id)]
    return f"{'link' if len(names) == 1 else 'links'} {listed(names)}"
