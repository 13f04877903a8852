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
``state.json``
    what has been handed over, the number of the next script, and the scripts of the newest
    change. The adapter replaces it atomically, and then a step counts as done. After a
    crash, the next call writes the scripts and host lists that are missing.
"""

import fcntl
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from laas_service.adapters import slurm
from laas_service.app.ports.compute import ComputeHost, Handover, Observed, Occupant
from laas_service.domain.errors import Conflict, InvalidFile, InvalidInput, Unavailable

_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class _Tenant:
    project_id: str
    hosts: tuple[str, ...]
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    """The content of ``state.json``."""

    next: int = 1
    """Number of the next script."""

    pool: tuple[str, ...] = ()
    """Hosts in the pool, sorted."""

    tenants: Mapping[str, _Tenant] = field(default_factory=dict)
    """What is handed over, by allocation id."""

    scripts: Mapping[str, str] = field(default_factory=dict)
    """Names and texts of scripts that may not be written yet."""


class DirectoryCompute:
    """The ``Compute`` port on a directory; a step counts as done when its script is written.

    The adapter cannot see servers: ``occupants`` is empty, it never raises ``HostsBusy``,
    and the scripts say what to check before you run them.

    ``hand_over`` raises ``Conflict`` for a host of another allocation.

    Errors of all methods: ``Unavailable`` when the directory cannot be read or
    written, ``InvalidFile`` when ``state.json`` is damaged, ``InvalidInput`` for
    names that are not safe in a file name or a command.
    """

    scripted: ClassVar[bool] = True

    def __init__(
        self, path: Path, *, pool: str = "laas-pool", sentinel: str = "laas-nobody"
    ) -> None:
        self._path = path
        self._pool = pool
        self._sentinel = sentinel

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
        with self._state() as state:
            missing = tuple(sorted(set(hosts) - set(state.pool)))
            if not missing:
                return
            lines = [f"# Each of these hosts must be empty: {_LIST_SERVERS}"]
            if not state.pool:
                closed = {"filter_tenant_id": self._sentinel, "laas:pool": "true"}
                lines += self._create(self._pool, closed)
            lines += _each("add", self._pool, missing)
            pooled = replace(state, pool=tuple(sorted({*state.pool, *missing})))
            self._commit(pooled, "pool", lines)

    def occupants(self, hosts: Collection[str]) -> Sequence[Occupant]:
        """Always empty: the adapter cannot see servers."""
        return ()

    def look(self, hosts: Collection[str]) -> Mapping[str, ComputeHost] | None:
        """Always None: the adapter cannot see hosts."""
        return None

    def close(self, hosts: Collection[str], closed: Collection[str]) -> None:
        """Nothing: the adapter sees no server for which it would have to close a host."""

    def stop(self, server: str) -> None:
        """Nothing: the adapter sees no server."""

    def hand_over(self, handover: Handover) -> None:
        """Write the commands that make the aggregate hold exactly these hosts."""
        id, project = _checked_id(handover.allocation_id), handover.project_id
        _check_arguments("project_id", [project])
        _check_arguments("hosts", handover.hosts)
        desired = _Tenant(project, tuple(sorted(handover.hosts)))
        with self._state() as state:
            present = state.tenants.get(id)
            if present == desired:
                return
            _check_no_overlap(id, desired, state)
            aggregate = f"laas-{id}"
            properties = {"filter_tenant_id": project, "laas:allocation": id}
            lines = [f"# Each of these hosts must be empty: {_LIST_SERVERS}"]
            if present is None:
                lines += self._create(aggregate, properties)
            else:
                lines += _each("remove", aggregate, sorted({*present.hosts} - {*desired.hosts}))
                lines += [_set(aggregate, properties)]
            lines += _each(
                "add", aggregate, sorted({*desired.hosts} - {*(present.hosts if present else ())})
            )
            lines += ["# Again, so that every scheduler reads the last state:"]
            lines += [_set(aggregate, properties)]
            tenants = {**state.tenants, id: desired}
            self._commit(replace(state, tenants=tenants), f"hand-over-{id}", lines)

    def fence(self, allocation_id: str) -> None:
        """Write the command that closes the hosts to the project, if they are handed over."""
        id = _checked_id(allocation_id)
        with self._state() as state:
            present = state.tenants.get(id)
            if present is None or present.fenced:
                return
            tenants = {**state.tenants, id: replace(present, fenced=True)}
            lines = [_set(f"laas-{id}", {"filter_tenant_id": self._sentinel})]
            self._commit(replace(state, tenants=tenants), f"fence-{id}", lines)

    def take_back(self, handover: Handover) -> None:
        """Write the commands that empty and delete the aggregate, if there is one."""
        id = _checked_id(handover.allocation_id)
        self.fence(id)
        with self._state() as state:
            tenants = dict(state.tenants)
            present = tenants.pop(id, None)
            if present is None:
                return
            lines = [f"# Only when the hosts are empty: {_LIST_SERVERS}"]
            lines += _each("remove", f"laas-{id}", present.hosts)
            lines += [_command("delete", f"laas-{id}")]
            self._commit(replace(state, tenants=tenants), f"take-back-{id}", lines)

    def handed_over(self) -> Mapping[str, Handover]:
        """What the scripts hand over; the project of a fenced allocation is the sentinel."""
        with self._state() as state:
            return {
                id: Handover(
                    id, self._sentinel if tenant.fenced else tenant.project_id, tenant.hosts
                )
                for id, tenant in state.tenants.items()
            }

    def observed(self) -> Observed:
        """What the scripts hand over and pool; other aggregates are unknown."""
        with self._state() as state:
            pooled = frozenset(state.pool)
        return Observed(self.handed_over(), pooled, {})

    def server_limit(self, project_id: str) -> int | None:
        """Always None: the adapter cannot read quotas."""
        return None

    def _create(self, aggregate: str, properties: Mapping[str, str]) -> list[str]:
        """Commands that create an aggregate; the metadata are set before the first host joins."""
        return [_command("create", aggregate), _set(aggregate, properties)]

    # -- files ------------------------------------------------------------------

    @contextmanager
    def _state(self) -> Iterator[_State]:
        """Lock the directory and yield the state, after writing any script that is missing."""
        try:
            for directory in ("commands", "nodes"):
                (self._path / directory).mkdir(parents=True, exist_ok=True)
            with open(self._path / ".lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield self._write_files(self._read())
        except OSError as error:
            raise Unavailable(f"compute directory {self._path}: {error}") from error

    def _read(self) -> _State:
        file = self._path / "state.json"
        try:
            return _parsed(json.loads(file.read_text("utf-8")))
        except FileNotFoundError:
            return _State()
        except json.JSONDecodeError as error:
            raise InvalidFile(str(file), error.lineno, error.msg) from error
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            reason = f"not the state of a compute directory: {error!r}"
            raise InvalidFile(str(file), 1, reason) from error

    def _commit(self, state: _State, step: str, lines: Sequence[str]) -> None:
        """Record the new state together with its script, then write the script."""
        script = "\n".join(["#!/bin/sh", "set -e", *lines, ""])
        name = f"{state.next:06d}-{step}.sh"
        state = replace(state, next=state.next + 1, scripts={name: script})
        self._save(state)
        self._write_files(state)

    def _write_files(self, state: _State) -> _State:
        if not state.scripts:
            return state
        for name, text in state.scripts.items():
            _replace_file(self._path / "commands" / name, text)
        self._write_lists(state)
        state = replace(state, scripts={})
        self._save(state)
        return state

    def _write_lists(self, state: _State) -> None:
        """Write a host list for each allocation that is not fenced; file names are checked ids."""
        lists = {
            id: "".join(f"{host}\n" for host in tenant.hosts)
            for id, tenant in state.tenants.items()
            if not tenant.fenced and all(map(slurm.usable, tenant.hosts))
        }
        directory = self._path / "nodes"
        for file in directory.iterdir():
            if file.name not in lists:
                file.unlink()
            elif file.read_text("utf-8") == lists[file.name]:
                del lists[file.name]
        for id, text in lists.items():
            _replace_file(directory / id, text)

    def _save(self, state: _State) -> None:
        _replace_file(self._path / "state.json", json.dumps(asdict(state), indent=1) + "\n")


_LIST_SERVERS = "openstack server list --all-projects --host HOST"


def _check_no_overlap(id: str, desired: _Tenant, state: _State) -> None:
    """Raises: Conflict if a host is handed over to another allocation."""
    for owner, tenant in state.tenants.items():
        if owner != id and (shared := sorted({*tenant.hosts} & {*desired.hosts})):
            raise Conflict(
                f"host {shared[0]} is handed over to allocation {owner}; if that is not recorded "
                f"(a restored database), delete aggregate laas-{owner} and its entry in "
                "state.json"
            )


def _parsed(document: dict[str, Any]) -> _State:
    return _State(
        int(document["next"]),
        tuple(document["pool"]),
        {
            id: _Tenant(tenant["project_id"], tuple(tenant["hosts"]), tenant["fenced"])
            for id, tenant in document["tenants"].items()
        },
        dict(document["scripts"]),
    )


def _replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: temporary file, fsync, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


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
