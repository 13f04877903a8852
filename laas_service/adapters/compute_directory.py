# SPDX-License-Identifier: Apache-2.0

"""Compute port without Nova: shell scripts of ``openstack`` commands, and host lists for Slurm.

Files in the directory:

``commands/000007-hand-over-ID.sh``
    one shell script for each step. Run them in the order of their numbers; then you may
    move or delete them.
``nodes/ID``
    the hosts of an allocation that is handed over and not fenced, one host a line (Slurm
    splits expressions with commas in a file). The file is missing if a host's name is not
    valid for a Slurm node.
``answers/000008-move-ID``
    made by the script of that number once no server of an allocation is on hosts that it leaves.
    Until then the step waits.
``journal``
    what has been handed over, a line a step (``compute_journal``). A step counts as done when its
    line is written. After a crash, the next call writes the script and host list that are missing.
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from laas_service.adapters.compute_journal import (
    LEAVE,
    HostMoves,
    Journal,
    JournalState,
    JournalStep,
    JournalTenant,
)
from laas_service.app.ports.compute import (
    ComputeHost,
    Handover,
    MoveProgress,
    MoveStage,
    ObservedAggregates,
    Occupant,
    ServerMoves,
    SlotMoves,
)
from laas_service.domain.errors import Conflict, HostsBusy, InvalidInput

_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class DirectoryCompute:
    """The ``Compute`` port on a directory; a step counts as done when its script is written.

    The adapter cannot see servers, and the scripts say what to check before you run them. With
    ``waits`` hosts that an allocation leaves count as busy until the script that takes them back
    has answered; without, ``occupants`` is empty. ``move_servers`` always waits for an answer.

    ``hand_over`` raises ``Conflict`` for a host of another allocation.

    Errors of all methods: ``Unavailable`` when the directory cannot be read or
    written, ``InvalidFile`` when ``journal`` is damaged, ``InvalidInput`` for
    names that are not safe in a file name or a command.
    """

    scripted: ClassVar[bool] = True
    claims_slots: ClassVar[bool] = False

    def __init__(
        self,
        path: Path,
        *,
        pool: str = "laas-pool",
        sentinel: str = "laas-nobody",
        waits: bool = False,
    ) -> None:
        self._path = path
        self._journal = Journal(path)
        self._pool = pool
        self._sentinel = sentinel
        self._waits = waits

    def comparison(self) -> AbstractContextManager[None]:
        """See ``Compute.comparison``; nothing is read twice anyway."""
        return nullcontext()

    def pool(self, hosts: Collection[str]) -> None:
        """Write the commands that add hosts to the pool, for those not in it yet.

        When an error names a host, all others have joined.
        """
        safe = {host for host in hosts if _is_argument(host)}
        self._join_pool(safe)
        _check_arguments("hosts", sorted(set(hosts) - safe))

    def _join_pool(self, hosts: Collection[str]) -> None:
        with self._journal.held() as state:
            missing = tuple(sorted(set(hosts) - state.pool))
            if not missing:
                return
            lines = [f"# Each of these hosts must be empty: {_LIST_SERVERS}"]
            if not state.pool:
                closed = {"filter_tenant_id": self._sentinel, "laas:pool": "true"}
                lines += self._create(self._pool, closed)
            lines += _each("add", self._pool, missing)
            self._journal.append(replace(_step(state, "pool", lines), pool=missing))

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """What may be on hosts that were left: a script that has to answer."""
        if not self._waits:
            return ()
        wanted = set(hosts)
        with self._journal.held() as state:
            return tuple(
                Occupant(host, f"whatever {moves.answer}.sh finds", None)
                for id, moves in state.moves.items()
                if moves.stage == LEAVE and not self._answered(moves)
                for host in sorted(wanted.intersection(moves.targets))
            )

    def _answered(self, moves: HostMoves) -> bool:
        return (self._path / "answers" / moves.answer).exists()

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost] | None:
        """Always None: the adapter cannot see hosts."""
        return None

    def nearest(self, hosts: Collection[str]) -> Mapping[str, str]:
        """Always empty: the adapter cannot see hosts."""
        return {}

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """Nothing: the adapter sees no server for which it would have to close a host."""

    def stop(self, server: str) -> None:
        """Nothing: the adapter sees no server."""

    def hand_over(self, handover: Handover, ready: Collection[str] = ()) -> None:
        """Write the commands that make the aggregate hold exactly these hosts.

        Nobody tells whether a host is ready.
        """
        id, project = _checked_id(handover.allocation_id), handover.project_id
        _check_arguments("project_id", [project])
        _check_arguments("hosts", handover.hosts)
        desired = JournalTenant(project, tuple(sorted(handover.hosts)))
        with self._journal.held() as state:
            present = state.tenants.get(id)
            if present == desired:
                return
            _check_no_overlap(id, desired, state)
            aggregate = f"laas-{id}"
            properties = {"filter_tenant_id": project, "laas:allocation": id}
            lines = [f"# Each of these hosts must be empty: {_LIST_SERVERS}"]
            left = sorted({*present.hosts} - {*desired.hosts}) if present else []
            if present is None:
                lines += self._create(aggregate, properties)
            else:
                lines += _each("remove", aggregate, left)
                lines += [_set(aggregate, properties)]
            lines += _each(
                "add", aggregate, sorted({*desired.hosts} - {*(present.hosts if present else ())})
            )
            lines += ["# Again, so that every scheduler reads the last state:"]
            lines += [_set(aggregate, properties)]
            moves = state.moves.get(id)
            kept = moves if moves and moves.stage == MoveStage.STOP.value else None
            if left and self._waits and kept is None:
                kept = _leaving(state, f"hand-over-{id}", left)
                lines += _emptied(kept)
            step = _step(state, f"hand-over-{id}", lines)
            self._journal.append(replace(step, id=id, tenant=desired, moves=kept))

    def move_servers(self, moves: ServerMoves) -> MoveProgress:
        """Write the commands of a stage; under way until their script has answered.

        The stages follow one another: an earlier one for the same hosts is over. Without a lock
        nothing stops, as the adapter sees no servers. Nothing waits for ``UNLOCK``.
        """
        id, stage = _checked_id(moves.allocation_id), moves.stage
        _check_arguments("hosts", [*moves.targets, *moves.targets.values()])
        if stage is MoveStage.STOP and not moves.locks:
            return MoveProgress()
        with self._journal.held() as state:
            if stage is MoveStage.UNLOCK and id not in state.tenants:
                return MoveProgress()
            present = state.moves.get(id)
            same = present and (present.targets, present.live) == (moves.targets, moves.live)
            if present and same and _ORDER[present.stage] > _ORDER[stage.value]:
                return MoveProgress()
            if present is None or not same or present.stage != stage.value:
                answer = f"{state.next:06d}-{stage.value}-{id}"
                present = HostMoves(dict(moves.targets), moves.live, answer, stage.value)
                step = _step(state, f"{stage.value}-{id}", _COMMANDS[stage](id, present))
                tenant = state.tenants.get(id)
                self._journal.append(replace(step, id=id, tenant=tenant, moves=present))
        if stage is MoveStage.UNLOCK or self._answered(present):
            return MoveProgress()
        return MoveProgress(under_way=(f"script {present.answer}.sh has not answered",))

    def running(self, moves: ServerMoves) -> MoveProgress:
        """Always nothing: the adapter cannot see servers."""
        return MoveProgress()

    def settle_slots(self, moves: SlotMoves) -> MoveProgress:
        """Nothing: slots are only counted."""
        return MoveProgress()

    def slot_holders(self, handover: Handover) -> Sequence[Occupant]:
        """Always empty: the adapter cannot see servers."""
        return ()

    def fence(self, allocation_id: str) -> None:
        """Write the command that closes the hosts to the project, if they are handed over."""
        id = _checked_id(allocation_id)
        with self._journal.held() as state:
            present = state.tenants.get(id)
            if present is None or present.fenced:
                return
            lines = [_set(f"laas-{id}", {"filter_tenant_id": self._sentinel})]
            step = replace(_step(state, f"fence-{id}", lines), id=id, moves=state.moves.get(id))
            self._journal.append(replace(step, tenant=replace(present, fenced=True)))

    def take_back(self, handover: Handover, *, force: bool = False) -> None:
        """Write the commands that empty and delete the aggregate, if there is one.

        They are the same with ``force``. Raises: HostsBusy, until the script has answered, if the
        adapter waits.
        """
        id = _checked_id(handover.allocation_id)
        self.fence(id)
        with self._journal.held() as state:
            present, before = state.tenants.get(id), state.moves.get(id)
            moves = before
            if present is not None:
                moves = None
                lines = [f"# Only when the hosts are empty: {_LIST_SERVERS}"]
                lines += _each("remove", f"laas-{id}", present.hosts)
                lines += [_command("delete", f"laas-{id}")]
                if self._waits:
                    unanswered = before.targets if before and before.stage == LEAVE else ()
                    hosts = [*present.hosts, *unanswered]
                    moves = _leaving(state, f"take-back-{id}", hosts)
                    lines += _emptied(moves)
                step = _step(state, f"take-back-{id}", lines)
                self._journal.append(replace(step, id=id, moves=moves))
            if moves is None or moves.stage != LEAVE:
                return
            if self._waits and not self._answered(moves):
                raise HostsBusy(
                    f"script {moves.answer}.sh has not answered: run it, or make the file "
                    f"answers/{moves.answer} once no server is on these hosts"
                )
            self._journal.forget(id)

    def handed_over(self) -> Mapping[str, Handover]:
        """What the scripts hand over; the project of a fenced allocation is the sentinel."""
        with self._journal.held() as state:
            return {
                id: Handover(
                    id, self._sentinel if tenant.fenced else tenant.project_id, tenant.hosts
                )
                for id, tenant in state.tenants.items()
            }

    def observed(self) -> ObservedAggregates:
        """What the scripts hand over and pool; other aggregates are unknown."""
        with self._journal.held() as state:
            pooled = frozenset(state.pool)
        return ObservedAggregates(self.handed_over(), pooled, {})

    def load(self, hosts: Collection[str]) -> None:
        """Always None: the adapter cannot list servers."""
        return None

    def server_limit(self, project_id: str) -> int | None:
        """Always None: the adapter cannot read quotas."""
        return None

    def _create(self, aggregate: str, properties: Mapping[str, str]) -> list[str]:
        """Commands that create an aggregate; the metadata are set before the first host joins."""
        return [_command("create", aggregate), _set(aggregate, properties)]


def _step(state: JournalState, name: str, lines: Sequence[str]) -> JournalStep:
    """The next step, with a script of these lines, that changes nothing yet."""
    script = "\n".join(["#!/bin/sh", "set -e", *lines, ""])
    return JournalStep(state.next, f"{state.next:06d}-{name}.sh", script)


def _leaving(state: JournalState, name: str, hosts: Sequence[str]) -> HostMoves:
    """What the next script has to answer: that these hosts are empty."""
    return HostMoves(dict.fromkeys(hosts, ""), False, f"{state.next:06d}-{name}", LEAVE)


def _emptied(moves: HostMoves) -> list[str]:
    """Commands that answer if hosts are empty, and say what to do if not."""
    lines = ["left="]
    for host in sorted(moves.targets):
        listing = shlex.join([*_OF_ALL, "list", "--all-projects", "--host", host, *_IDS])
        lines.append(f'left="$left$({listing})"')
    return [
        *lines,
        'if test -z "$left"; then',
        f"  {_answered(moves)}",
        "else",
        f"  echo 'Servers are left. Once they are gone: touch answers/{moves.answer}' >&2",
        "fi",
    ]


def _stop_commands(id: str, moves: HostMoves) -> list[str]:
    """Commands that lock and stop the servers that run, note them, and answer."""
    stopped = _stopped(id)
    lines = ["# Their owner cannot start them until they have moved."]
    for host in sorted(moves.targets):
        listing = [*_OF_ALL, "list", "--all-projects", "--host", host, "--status", "ACTIVE", *_IDS]
        lock = [*_LOCKS, "lock", "--reason", f"stopped for the move of allocation {id}"]
        lines += [
            f"servers=$({shlex.join(listing)})",
            "for server in $servers; do",
            f'  echo "$server" >> {stopped}',
            f'  {shlex.join(lock)} "$server"',
            f'  {shlex.join([*_OF_ALL, "stop"])} "$server"',
            "done",
            f'while left=$({shlex.join(listing)}) && test -n "$left"; do sleep 1; done',
        ]
    return [*lines, _answered(moves)]


def _start_commands(id: str, moves: HostMoves) -> list[str]:
    """Commands that unlock and start the servers that the commands above have stopped."""
    stopped = _stopped(id)
    status = f'{shlex.join([*_OF_ALL, "show", "-f", "value", "-c", "status"])} "$server"'
    return [
        f"for server in $(cat {stopped}); do",
        f'  {shlex.join([*_LOCKS, "unlock"])} "$server"',
        f'  test "$({status})" != SHUTOFF || {shlex.join([*_OF_ALL, "start"])} "$server"',
        "done",
        f"rm -f {stopped}",
        _answered(moves),
    ]


def _unlock_commands(id: str, moves: HostMoves) -> list[str]:
    """Commands that unlock the servers that were stopped, and leave them as they are."""
    stopped = _stopped(id)
    return [
        f"for server in $(cat {stopped} 2> /dev/null); do",
        f'  {shlex.join([*_LOCKS, "unlock"])} "$server"',
        "done",
        f"rm -f {stopped}",
        _answered(moves),
    ]


def _stopped(id: str) -> str:
    """The file with the ids of servers that were stopped, as a script names it."""
    return f'"$(dirname "$0")/../answers/stopped-{id}"'


def _answered(moves: HostMoves) -> str:
    return f'touch "$(dirname "$0")/../answers/{moves.answer}"'


def _move_commands(id: str, moves: HostMoves) -> list[str]:
    """Commands that move all servers, prove the hosts empty, and answer."""
    lines = [
        "# Servers stop meanwhile, unless they migrate live. After an interruption first confirm",
        "# what waits: openstack server list --all-projects --status VERIFY_RESIZE",
    ]
    how = ["--live-migration"] if moves.live else []
    for host, target in sorted(moves.targets.items()):
        listing = shlex.join([*_OF_ALL, "list", "--all-projects", "--host", host, *_IDS])
        migrate = shlex.join([*_OF_ALL, "migrate", *how, "--host", target, "--wait"])
        lines += [f"servers=$({listing})", "for server in $servers; do", f'  {migrate} "$server"']
        if not moves.live:
            lines.append(f'  {shlex.join([*_OF_ALL, "migrate", "confirm"])} "$server"')
        lines += ["done", f"left=$({listing})", 'test -z "$left"']
    return [*lines, _answered(moves)]


_COMMANDS = {
    MoveStage.STOP: _stop_commands,
    MoveStage.MOVE: _move_commands,
    MoveStage.START: _start_commands,
    MoveStage.UNLOCK: _unlock_commands,
}
_ORDER = {stage.value: number for number, stage in enumerate(_COMMANDS)}

_OF_ALL = ("openstack", "--os-compute-api-version", "2.56", "server")
_LOCKS = ("openstack", "--os-compute-api-version", "2.73", "server")
_IDS = ("-f", "value", "-c", "ID")
_LIST_SERVERS = "openstack server list --all-projects --host HOST"


def _check_no_overlap(id: str, desired: JournalTenant, state: JournalState) -> None:
    """Raises: Conflict if a host is handed over to another allocation."""
    for host in desired.hosts:
        if (owner := state.owners.get(host, id)) != id:
            raise Conflict(
                f"host {host} is handed over to allocation {owner}, which keeps it; if two fabrics "
                "record the same hosts, release the allocations of one of them, then delete that "
                "fabric (laas fabric delete)"
            )


def _checked_id(id: str) -> str:
    if not _SAFE_ID.fullmatch(id):
        raise InvalidInput(
            "allocation_id", id, "use up to 128 of A-Z a-z 0-9 . _ -, not . or - in front"
        )
    return id


def _is_argument(value: str) -> bool:
    return bool(value) and not value.startswith("-") and value.isprintable()


def _check_arguments(field: str, values: Collection[str]) -> None:
    """Check words of a command line, where a leading dash would make an option."""
    for value in values:
        if not _is_argument(value):
            raise InvalidInput(
                field, value, "it must not be empty, begin with '-' or hold unprintable characters"
            )


def _command(*words: str) -> str:
    return shlex.join(["openstack", "aggregate", *words])


def _set(aggregate: str, properties: Mapping[str, str]) -> str:
    options = [
        word for key, value in properties.items() for word in ("--property", f"{key}={value}")
    ]
    return _command("set", *options, aggregate)


def _each(verb: str, aggregate: str, hosts: Sequence[str]) -> list[str]:
    return [_command(verb, "host", aggregate, host) for host in hosts]
