# SPDX-License-Identifier: Apache-2.0

"""Every state, step and flag has one next action, and the actions reach an end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laas_service.app import lifecycle, requested_states
from laas_service.app.lifecycle import (
    Action,
    AllocationFaults,
    Change,
    ChangeStep,
    Phase,
    State,
    WantedRoutes,
)
from laas_service.app.records import AllocationRecord
from laas_service.app.wording import reasons
from laas_service.domain.allocation import Allocation, ColumnShare, GroupShare
from laas_service.domain.errors import Conflict
from laas_service.domain.tenancy import CONTAINER, OWNED, Kind, Owned
from laas_service.domain.topology import LeafLink, Topology, Xgft
from laas_service.messages import ConfirmedBy

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = Topology(Xgft((4, 2, 4), (1, 4, 4)))
FAILED_LINK = AllocationFaults(links=(LeafLink(0, 0, 0),))
FAILED_HOST = AllocationFaults(hosts=(1,))


def placement(hosts: int = 0b11, uplinks: int = 0b0011, spines: int = 0) -> Allocation:
    return Allocation(
        "a",
        hosts.bit_count(),
        "test",
        tuple(GroupShare(group, hosts, uplinks) for group in (0, 1)),
        tuple(ColumnShare(0, column, spines) for column in range(4) if spines),
    )


HOSTS = range(SMALL.hosts)
LINKS_ALONE = [Phase.PREPARE, Phase.SWITCH, Phase.WITHDRAW]
OLD, NEW = placement(uplinks=0b0011), placement(uplinks=0b0110)


def record(state: State, **fields) -> AllocationRecord:
    made = AllocationRecord(
        id="a",
        fabric="f",
        name="a",
        project_id="blue",
        policy="test",
        hosts=2,
        state=state,
        version=1,
        pkey=1,
        placed=OLD,
        handed_back=False,
        force=False,
        error=None,
        created_at=EPOCH,
        updated_at=EPOCH,
        generation=7,
    )
    return replace(made, **fields)


def changing(phase: Phase, state: State = State.ACTIVE, **fields) -> AllocationRecord:
    return record(state, placed=NEW, leaving=OLD, phase=phase, **fields)


def everything() -> list[AllocationRecord]:
    """Every combination of state, phase, flags and faults that a record may have."""
    flags = itertools.product((False, True), repeat=3)
    return [
        replace(
            record(state) if phase is None else changing(phase, state),
            handed_back=handed_back,
            force=force,
            container=container,
            faults=faults,
            placed=None if state not in lifecycle.HOLDING else NEW if phase else OLD,
        )
        for state in State
        for phase in (None, *Phase)
        if phase is None or state in lifecycle.HOLDING - {State.ALLOCATING}
        for handed_back, force, container in flags
        for faults in (None, FAILED_LINK, FAILED_HOST)
    ]


# -- the next action --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "fields", "unconfirmed", "confirmed"),
    [
        (State.QUEUED, {}, Action.NOTHING, Action.NOTHING),
        (State.ALLOCATING, {}, Action.PUBLISH, Action.HAND_OVER),
        (State.ALLOCATING, {"faults": FAILED_LINK}, Action.PUBLISH, Action.HAND_OVER),
        (State.ACTIVE, {}, Action.NOTHING, Action.NOTHING),
        (State.ACTIVE, {"faults": FAILED_HOST}, Action.NOTHING, Action.NOTHING),
        (State.ACTIVE, {"faults": FAILED_LINK}, Action.REPAIR, Action.REPAIR),
        (
            State.ACTIVE,
            {"faults": FAILED_LINK, "container": True},
            Action.NOTHING,
            Action.NOTHING,
        ),
        (State.RELEASING, {}, Action.TAKE_BACK, Action.TAKE_BACK),
        (State.RELEASING, {"force": True}, Action.CUT_OFF, Action.CUT_OFF),
        (State.RELEASING, {"handed_back": True}, Action.PUBLISH, Action.FREE),
        (State.RELEASING, {"handed_back": True, "force": True}, Action.PUBLISH, Action.FREE),
        (State.RELEASED, {"handed_back": True}, Action.NOTHING, Action.NOTHING),
        (State.ERROR, {}, Action.NOTHING, Action.NOTHING),
        (State.ERROR, {"faults": FAILED_LINK}, Action.NOTHING, Action.NOTHING),
    ],
)
def test_the_next_action_of_each_state(state, fields, unconfirmed, confirmed):
    for seen, action in ((False, unconfirmed), (True, confirmed)):
        assert lifecycle.next_action(record(state, **fields), seen, repair_links=True) is action


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.STOP])
@pytest.mark.parametrize("faults", [None, FAILED_LINK])
def test_every_step_of_a_change_waits_for_its_routes_and_then_proceeds(phase, faults):
    allocation = changing(phase, faults=faults)
    act = lifecycle.next_action
    assert act(allocation, False, repair_links=True) is Action.PUBLISH
    then = {Phase.ENTER: Action.OPEN, Phase.LEAVE: Action.GIVE_BACK}.get(phase, Action.PROCEED)
    assert act(allocation, True, repair_links=True) is then


@pytest.mark.parametrize("phase", Phase)
def test_outside_active_a_change_takes_no_step(phase):
    for state in lifecycle.HOLDING - {State.ACTIVE}:
        plain, other = record(state), changing(phase, state)
        for seen in (False, True):
            assert lifecycle.next_action(other, seen, repair_links=True) is lifecycle.next_action(
                plain, seen, repair_links=True
            )


def test_links_are_repaired_only_where_that_is_switched_on():
    degraded = record(State.ACTIVE, faults=FAILED_LINK)
    assert lifecycle.next_action(degraded, True, repair_links=True) is Action.REPAIR
    assert lifecycle.next_action(degraded, True, repair_links=False) is Action.NOTHING


def test_what_awaits_no_routes_does_not_depend_on_the_switches_and_the_rest_does():
    for allocation in everything():
        unseen, seen = (
            lifecycle.next_action(allocation, confirmed, repair_links=True)
            for confirmed in (False, True)
        )
        assert (unseen is not seen) == lifecycle.awaits_routes(allocation)
        assert (unseen is Action.PUBLISH) == lifecycle.awaits_routes(allocation)
        assert seen is not Action.PUBLISH


@pytest.mark.parametrize(("applied", "answer"), [(None, False), (6, False), (7, True), (8, True)])
def test_routes_are_confirmed_by_their_generation_or_a_later_one(applied, answer):
    assert lifecycle.confirmed(record(State.ALLOCATING), applied) is answer
    assert lifecycle.confirmed(record(State.ACTIVE), applied) is False


def test_a_worker_has_a_step_exactly_for_what_is_due():
    for allocation in everything():
        changes = allocation.state in lifecycle.DUE_IF_CHANGING
        degraded = lifecycle.has_replaceable_links(allocation) and not allocation.container
        due = allocation.state in lifecycle.DUE or (
            changes and (allocation.change is not None or degraded)
        )
        action = lifecycle.next_action(allocation, False, repair_links=True)
        assert (action is not Action.NOTHING) == due


def after(allocation: AllocationRecord, action: Action) -> AllocationRecord:
    """The record after a worker has taken the action; the switches have confirmed all routes."""
    if action is Action.HAND_OVER:
        return replace(allocation, state=State.ACTIVE)
    if action in (Action.TAKE_BACK, Action.CUT_OFF):
        return replace(allocation, handed_back=True)
    if action is Action.FREE:
        freed = replace(allocation, placed=None, leaving=None, phase=None, faults=None)
        return replace(freed, state=State.RELEASED)
    if action is Action.REPAIR:
        assert allocation.placed is not None
        change = Change.begun(allocation.placed, NEW)
        return replace(allocation, placed=NEW, leaving=change.old, phase=change.phase)
    assert action in (Action.PROCEED, Action.OPEN, Action.GIVE_BACK)
    assert allocation.change is not None
    if allocation.change.next_phase is None:
        return replace(allocation, leaving=None, phase=None, faults=None)
    return replace(allocation, phase=allocation.change.next_phase)


@given(st.sampled_from(everything()), st.lists(st.booleans(), max_size=12), st.booleans())
def test_from_any_state_the_actions_reach_an_end(allocation, confirmations, repair_links):
    """Late confirmations only delay the end, and each action leads to a permitted state."""
    start = allocation.state
    for confirmed in (*confirmations, *[True] * 8):
        action = lifecycle.next_action(allocation, confirmed, repair_links=repair_links)
        if action in (Action.NOTHING, Action.PUBLISH):
            continue
        following = after(allocation, action)
        assert following.state in lifecycle.SUCCESSORS[allocation.state]
        allocation = following
    assert lifecycle.next_action(allocation, True, repair_links=repair_links) is Action.NOTHING
    ends = {State.ALLOCATING: State.ACTIVE, State.RELEASING: State.RELEASED}
    assert allocation.state is ends.get(start, start)
    assert allocation.state in (State.QUEUED, State.ERROR) or not lifecycle.is_moving(allocation)


# -- changes of placement -----------------------------------------------------------------


def test_the_steps_of_a_change_their_routes_and_reasons():
    change = Change.begun(OLD, NEW)
    told: list[tuple[str, WantedRoutes, str]] = []
    phases: list[Phase] = []
    while True:
        reason = reasons.step_reason(change, SMALL, ConfirmedBy.SWITCHES)
        told.append((change.phase.value, change.routes, reason))
        phases.append(change.phase)
        if change.next_phase is None:
            break
        change = replace(change, phase=change.next_phase)
    assert phases == [step.phase for step in change.steps()] == LINKS_ALONE
    assert told == [
        (
            "prepare",
            WantedRoutes(OLD, beside=NEW),
            "routes over the new links confirmed in the switches; traffic goes over to them",
        ),
        (
            "switch",
            WantedRoutes(NEW, beside=OLD),
            "routes that move the traffic to the new links confirmed in the switches; "
            "the old routes have to go",
        ),
        (
            "withdraw",
            WantedRoutes(NEW),
            "withdrawal of the old routes confirmed in the switches; "
            "freed links leaf-0-0-0, leaf-0-1-0",
        ),
    ]


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (ConfirmedBy.SWITCHES, "confirmed in the switches"),
        (ConfirmedBy.AGENT, "confirmed by the agent beside OpenSM"),
        (ConfirmedBy.FILES, "written, nobody read the switches"),
        (ConfirmedBy.NOBODY, "written, no subnet manager is configured"),
    ],
)
def test_reasons_claim_no_more_than_somebody_saw(by, words):
    nova = reasons.active_reason(by, OWNED, scripted=False)
    assert nova == f"routes {words}; hosts handed over"
    scripts = reasons.active_reason(by, OWNED, scripted=True)
    assert scripts.startswith(f"routes {words}; script that hands the hosts over written")
    container = reasons.active_reason(by, CONTAINER, scripted=True)
    assert container == f"routes {words}; hosts stay in the pool, for allocations inside"
    change = Change.begun(OLD, NEW)
    told = [reasons.step_reason(replace(change, phase=phase), SMALL, by) for phase in LINKS_ALONE]
    told += [
        reasons.freed_reason(by, kind, scripted=scripted)
        for scripted in (False, True)
        for kind in (OWNED, CONTAINER)
    ]
    assert [words in reason for reason in told] == [True] * 7
    claims = [reason for reason in (nova, scripts, container, *told) if "confirmed" in reason]
    assert bool(claims) is by.was_read


def test_a_record_that_changes_shows_what_it_holds_and_what_its_traffic_uses():
    for phase in Phase:
        allocation = changing(phase)
        assert allocation.held == NEW.joined(OLD)
        before = phase in (Phase.STOP, Phase.PREPARE)
        assert allocation.traffic == (OLD if before else NEW)
        assert lifecycle.routes(NEW, OLD, phase).traffic == allocation.traffic
    settled = record(State.ACTIVE)
    assert (settled.change, settled.held, settled.traffic) == (None, OLD, OLD)
    assert lifecycle.routes(OLD, None, None) == WantedRoutes(OLD)


masks = st.integers(1, 15)


@given(masks, masks, masks, masks, masks, masks)
def test_what_a_change_claims_and_frees_is_what_differs(h1, u1, s1, h2, u2, s2):
    old, new = placement(h1, u1, s1), placement(h2, u2, s2)
    change = Change.begun(old, new)

    def parts(allocation: Allocation) -> set[object]:
        return {*allocation.hosts(SMALL), *allocation.links(SMALL)}

    assert parts(change.claimed) == parts(new) - parts(old)
    assert parts(change.freed) == parts(old) - parts(new)
    assert parts(change.held) == parts(old) | parts(new)
    for phase in Phase:
        routed = replace(change, phase=phase).routes
        assert parts(routed.traffic) | parts(routed.beside or routed.traffic) <= parts(change.held)


@given(masks, masks)
def test_the_servers_of_each_old_host_go_to_one_new_host(h1, h2):
    change = Change.begun(placement(h1), placement(h2))
    old, new = hosts_of(change.old), hosts_of(change.new)
    targets = change.server_targets(SMALL)
    assert targets.keys() == (old - new if new - old else set())
    assert set(targets.values()) <= new - old
    most = -(-len(old - new) // len(new - old)) if new - old else 0
    assert all(list(targets.values()).count(host) <= most for host in new - old)
    if targets and len(old - new) == len(new - old):
        back = replace(change, phase=Phase.LEAVE).way_back
        assert back is not None
        assert back.server_targets(SMALL) == {there: here for here, there in targets.items()}


def walked(change: Change) -> list[Change]:
    """A change at each of its steps, from where it is."""
    changes = [change]
    while (phase := changes[-1].next_phase) is not None:
        changes.append(replace(changes[-1], phase=phase))
    return changes


def hosts_of(allocation: Allocation | None) -> set[int]:
    return set() if allocation is None else set(allocation.hosts(SMALL))


def exchanges(change: Change) -> bool:
    old, new = hosts_of(change.old), hosts_of(change.new)
    return bool(old - new and new - old)


@given(masks, masks, masks, masks, st.booleans())
def test_a_host_accepts_servers_only_between_its_routes(h1, u1, h2, u2, bridged):
    """New hosts once the traffic goes over the new links; old ones until they are withdrawn.

    Where nothing joins them, the old ones only until their servers stop, before the routes change.
    """
    old, new = placement(h1, u1), placement(h2, u2)
    steps = walked(Change.begun(old, new, placement(0, 0) if bridged else None))
    parted = exchanges(steps[0]) and not bridged
    assert steps[0].parted == parted
    wanted = [*LINKS_ALONE]
    if parted:
        wanted.append(Phase.STOP)
        assert steps[0].routes == WantedRoutes(old)
        assert steps[0].step.action is Action.STOP
        assert not steps[0].step.awaits_routes
    if hosts_of(new) - hosts_of(old):
        wanted.append(Phase.ENTER)
    if hosts_of(old) - hosts_of(new):
        wanted.append(Phase.LEAVE)
    assert [step.phase for step in steps] == [phase for phase in Phase if phase in wanted]
    routed: set[int] = hosts_of(old)  # hosts whose routes are confirmed before the step
    for step in steps:
        routes = step.routes
        opened = hosts_of(step.open_hosts)
        wanted_hosts = hosts_of(routes.traffic) | hosts_of(routes.beside)
        assert opened <= routed
        assert opened <= wanted_hosts
        routed = wanted_hosts
        if parted:
            assert not opened & (hosts_of(old) - hosts_of(new))
    assert hosts_of(steps[0].open_hosts) == hosts_of(old) & (hosts_of(new) if parted else {*HOSTS})
    assert hosts_of(steps[-1].open_hosts) == hosts_of(new)


@given(masks, masks, masks, masks, st.data())
def test_a_change_may_turn_back_until_its_old_routes_are_withdrawn(h1, u1, h2, u2, data):
    """On the way back, too, hosts accept servers only while their routes are confirmed."""
    bridge = data.draw(st.sampled_from([None, placement(0, 15 ^ (u1 | u2))]))
    steps = walked(Change.begun(placement(h1, u1), placement(h2, u2), bridge))
    present = data.draw(st.sampled_from(steps))
    back = present.way_back
    if present.phase is Phase.WITHDRAW:
        assert back is None
        return
    assert back is not None
    assert (back.old, back.new) == (present.new, present.old)
    assert back.held.groups == present.held.groups
    assert back.bridge == bridge
    routed = hosts_of(present.routes.traffic) | hosts_of(present.routes.beside)
    may_be_open = hosts_of(present.open_hosts)
    for step in walked(back):
        wanted = hosts_of(step.routes.traffic) | hosts_of(step.routes.beside)
        assert may_be_open <= wanted, "hosts lose their routes before they are given back"
        may_be_open = hosts_of(step.open_hosts)
        assert may_be_open <= routed & wanted
        routed = wanted
    assert may_be_open == hosts_of(present.old)


def test_each_kind_of_tenancy_has_a_way_to_change():
    assert lifecycle.WAYS.keys() == set(get_args(Kind))


def test_a_step_of_another_kind_is_taken_without_waiting_for_routes(monkeypatch):
    """A step with an action of its own, such as joining hosts, is one more entry in its way."""
    first, *others = lifecycle.STEPS
    joining = replace(first, action=Action.HAND_OVER, awaits_routes=False)
    assert isinstance(joining, ChangeStep)
    way = replace(lifecycle.WAYS[Owned], order=(joining, *others))
    monkeypatch.setattr(lifecycle, "WAYS", {**lifecycle.WAYS, Owned: way})
    allocation = changing(first.phase)
    assert not lifecycle.awaits_routes(allocation)
    assert lifecycle.next_action(allocation, False, repair_links=True) is Action.HAND_OVER
    assert allocation.change is not None
    assert allocation.change.next_phase is others[0].phase


def test_a_repair_says_which_links_replace_which():
    reason = reasons.link_repair_reason(Change.begun(OLD, NEW), SMALL)
    assert reason == (
        "repair: links leaf-0-0-0, leaf-0-1-0 replaced by links leaf-0-0-2, leaf-0-1-2"
    )


# -- requests of callers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "fields", "gentle", "forced"),
    [
        (State.QUEUED, {}, State.RELEASED, State.RELEASED),
        (State.ALLOCATING, {}, State.RELEASING, State.RELEASING),
        (State.ACTIVE, {}, State.RELEASING, State.RELEASING),
        (State.ERROR, {}, State.RELEASING, State.RELEASING),
        (State.RELEASING, {}, None, State.RELEASING),
        (State.RELEASING, {"force": True}, None, None),
        (State.RELEASED, {}, None, None),
    ],
)
def test_where_a_release_leads(state, fields, gentle, forced):
    for force, to in ((False, gentle), (True, forced)):
        allocation = record(state, **fields)
        assert requested_states.state_after_release(allocation, force=force) is to
        assert to is None or to in lifecycle.SUCCESSORS[state]


@pytest.mark.parametrize(
    ("state", "fields", "to"),
    [
        (State.ALLOCATING, {}, None),
        (State.ALLOCATING, {"next_try": EPOCH}, State.ALLOCATING),
        (State.ACTIVE, {"next_try": EPOCH}, State.ACTIVE),
        (State.ERROR, {"parked": State.ACTIVE}, State.ACTIVE),
        (State.ERROR, {}, State.ALLOCATING),
        (State.ERROR, {"handed_back": True}, State.RELEASING),
    ],
)
def test_where_a_retry_resumes(state, fields, to):
    assert requested_states.state_after_retry(record(state, **fields), waits=False) is to


@pytest.mark.parametrize(
    ("state", "to"),
    [
        (State.ALLOCATING, State.ALLOCATING),
        (State.RELEASING, State.RELEASING),
        (State.ACTIVE, None),
        (State.ERROR, State.ALLOCATING),
    ],
)
def test_where_a_retry_resumes_while_the_worker_waits(state, to):
    assert requested_states.state_after_retry(record(state), waits=True) is to


@pytest.mark.parametrize("state", [State.QUEUED, State.RELEASED])
def test_there_is_no_step_to_retry(state):
    with pytest.raises(Conflict, match=f"is {state.value}; there is no step to retry"):
        requested_states.state_after_retry(record(state, placed=None), waits=True)


def test_an_error_remembers_where_it_was_parked():
    assert lifecycle.parked_from(record(State.ACTIVE), State.ERROR) is State.ACTIVE
    again = record(State.ERROR, parked=State.RELEASING)
    assert lifecycle.parked_from(again, State.ERROR) is State.RELEASING
    assert lifecycle.parked_from(again, State.ACTIVE) is None


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_only_successors_are_accepted_and_nothing_is_freed_by_a_transition(old, new):
    frees = new is State.RELEASED or (new is State.QUEUED and old is not State.QUEUED)
    allowed = new in lifecycle.SUCCESSORS[old] and not frees
    if allowed:
        lifecycle.check_successor(record(old), new)
        return
    with pytest.raises(Conflict, match=f"'a' is {old.value}; it cannot become {new.value}"):
        lifecycle.check_successor(record(old), new)


@pytest.mark.parametrize(
    ("check", "allocation", "words"),
    [
        (lifecycle.check_queued, record(State.ACTIVE), "is active; only a queued"),
        (lifecycle.check_releasing, record(State.ACTIVE), "is active; it is not being released"),
        (lifecycle.check_freeable, record(State.ACTIVE), "is active; it is not being released"),
        (
            lifecycle.check_freeable,
            record(State.RELEASING),
            "is releasing; its hosts are not handed back",
        ),
        (
            lifecycle.check_active,
            record(State.ALLOCATING),
            "is allocating; wait until it is active",
        ),
        (lifecycle.check_changeable, changing(Phase.SWITCH), "is changing already"),
        (lifecycle.check_changing, record(State.ACTIVE), "no change of placement"),
        (lifecycle.check_changing, changing(Phase.SWITCH, State.ERROR), "no change of placement"),
        (lifecycle.check_repairable, record(State.ERROR), "is error; wait until it is active"),
        (lifecycle.check_repairable, record(State.ACTIVE, container=True), "is a container"),
    ],
)
def test_a_refusal_says_why(check, allocation, words):
    with pytest.raises(Conflict, match=words):
        check(allocation)


def test_what_may_be_done_is_not_refused():
    lifecycle.check_queued(record(State.QUEUED, placed=None))
    lifecycle.check_freeable(record(State.RELEASING, handed_back=True))
    active = record(State.ACTIVE)
    assert lifecycle.check_changeable(active) is lifecycle.check_repairable(active) is OLD
    assert lifecycle.check_changing(changing(Phase.PREPARE)).new is NEW


def test_sets_of_states_agree():
    assert {*State} - {State.RELEASED} == lifecycle.LIVE
    assert {State.ALLOCATING, State.ACTIVE, State.RELEASING, State.ERROR} == lifecycle.HOLDING
    assert {State.QUEUED, State.ALLOCATING, State.RELEASING} == lifecycle.MOVING
    assert {State.ALLOCATING, State.RELEASING} == lifecycle.DUE
    assert lifecycle.ENTERABLE <= lifecycle.HOLDING
    assert {*lifecycle.SUCCESSORS} == {*State}


def test_an_allocation_at_rest_moves_no_more():
    for allocation in everything():
        if lifecycle.is_at_rest(allocation):
            assert not lifecycle.is_moving(allocation)
            assert not lifecycle.awaits_routes(allocation)


def test_an_allocation_that_is_placed_anew_is_requeued_once_its_routes_are_withdrawn():
    given_up = replace(record(State.ALLOCATING), handed_back=True)
    assert lifecycle.next_action(given_up, False, repair_links=True) is Action.PUBLISH
    assert lifecycle.next_action(given_up, True, repair_links=True) is Action.REQUEUE
    lifecycle.check_requeueable(given_up)
    for other in (record(State.ALLOCATING), replace(record(State.RELEASING), handed_back=True)):
        with pytest.raises(Conflict, match="it cannot be placed anew"):
            lifecycle.check_requeueable(other)
