# SPDX-License-Identifier: Apache-2.0

"""Finds what a request names: allocations, policies, fabrics, containers, hosts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from laas_service.app.lifecycle import ENTERABLE
from laas_service.app.ports.projects import Projects
from laas_service.app.ports.snapshots import FabricSnapshot, Snapshot
from laas_service.app.ports.store import Store
from laas_service.app.records import NO_LIMITS, AllocationRecord, Caller, Enclosing, Limits
from laas_service.app.requests import AllocationRequest
from laas_service.domain.admission.constrained import check_constraints, hosts_of_domains
from laas_service.domain.constraints import Constraints, ContentionFree
from laas_service.domain.errors import Forbidden, InvalidInput, NotFound, PreconditionFailed
from laas_service.domain.ledger import LedgerView
from laas_service.domain.policies.base import Policy
from laas_service.domain.wording import alike


class Lookup:
    """What names in requests stand for; ``policies`` are those that are offered.

    ``projects`` looks up the projects that administrators name. With
    ``foreign_default_routes`` a subnet manager chooses the default routes by itself.

    Raises:
        InvalidInput: the default policy is not offered.
    """

    def __init__(
        self,
        store: Store,
        policies: Mapping[str, Policy],
        projects: Projects,
        *,
        default_policy: str,
        default_fabric: str | None = None,
        contention_free: ContentionFree | None = None,
        foreign_default_routes: bool = False,
    ) -> None:
        if default_policy not in policies:
            raise InvalidInput("default_policy", default_policy, choose(policies, "policy"))
        self._store = store
        self._policies = policies
        self._projects = projects
        self._default_policy = default_policy
        self._default_fabric = default_fabric
        self._contention_free = contention_free
        self._foreign_default_routes = foreign_default_routes

    def allocation(self, caller: Caller, id: str) -> AllocationRecord:
        """One allocation with its history.

        Raises:
            NotFound: there is no allocation of this id that the caller may see.
        """
        record = self._store.allocations.get(id)
        if not caller.admin and record.project_id != caller.project_id:
            raise NotFound("allocation", id)
        return record

    def expected(
        self, caller: Caller, id: str, versions: Collection[int] | None
    ) -> AllocationRecord:
        """As ``allocation``. Raises: PreconditionFailed, if it has none of these versions."""
        record = self.allocation(caller, id)
        if versions is not None and record.version not in versions:
            raise PreconditionFailed(
                f"allocation {id} has version {record.version}; read it again and decide anew"
            )
        return record

    def is_known(self, caller: Caller, project_id: str) -> bool:
        """Whether a project is known to exist; False if that cannot be checked.

        Raises:
            InvalidInput: Keystone does not have it, or disabled it.
            Unavailable: Keystone did not answer.
        """
        return project_id == caller.project_id or self._projects.check(project_id)

    def project(self, caller: Caller, id: str) -> str:
        """The project of a new allocation; empty names the caller's own.

        Raises:
            InvalidInput: no project is known.
            Forbidden: another project is named and the caller is no admin.
        """
        project = id or caller.project_id
        if not project:
            raise InvalidInput("project_id", project, "name one, or use a project-scoped token")
        if project != caller.project_id and not caller.admin:
            raise Forbidden("only an administrator may allocate for another project")
        return project

    def policy(self, name: str) -> Policy:
        """The policy of this name; empty names the default. Raises: InvalidInput."""
        name = name or self._default_policy
        if name not in self._policies:
            raise InvalidInput("policy", name, choose(self._policies, "policy"))
        return self._policies[name]

    def read(
        self, asked: AllocationRequest, project_id: str = "", limits: Limits = NO_LIMITS
    ) -> Snapshot:
        """What a request depends on; ``limits`` are those of projects without a quota."""
        return self._store.snapshot(asked, project_id, self._default_fabric, limits)

    def fabric(self, snapshot: Snapshot, id: str) -> str:
        """The id of the fabric named, of the configured default, or of the only one.

        Raises:
            NotFound: there is no such fabric.
            InvalidInput: none is named and there are several.
        """
        known = list(snapshot.fabrics)
        if id := id or self.default_fabric(known) or "":
            if id not in snapshot.fabrics:
                raise NotFound("fabric", id, alike(id, known, "the service"))
            return id
        if not known:
            raise NotFound("fabric", "default")
        raise InvalidInput("fabric", None, choose(known, "fabric"))

    def default_fabric(self, known: Sequence[str]) -> str | None:
        """The id of the fabric that is meant if none is named: the configured one, or else the only
        one of those ``known``; None if there are several or none."""
        return self._default_fabric or (known[0] if len(known) == 1 else None)

    def container(self, caller: Caller, snapshot: Snapshot, asked: AllocationRequest) -> Enclosing:
        """The container that an allocation is to be inside, ``asked.parent``.

        Raises:
            NotFound: there is no such allocation that the caller may see.
            InvalidInput: it is no container, is on another fabric, or does not hold its hosts.
        """
        record = snapshot.parent
        own = record is not None and (caller.admin or record.project_id == caller.project_id)
        if record is None or not own:
            raise NotFound("allocation", asked.parent or "")
        if not record.container:
            fix = "name an allocation made with container: true"
            raise InvalidInput("parent", record.id, fix)
        check_enterable(record, asked, "container is")
        return record

    def constraints(self, here: FabricSnapshot, request: AllocationRequest) -> Constraints | None:
        """The request's constraints, completed: hosts to avoid by number, the site's default.

        None if there are none.

        Raises:
            InvalidInput: the fabric has no such host, pod or trait, or it is to be undisturbed
                where a subnet manager chooses the default routes.
        """
        constraints = request.constraints or Constraints()
        if constraints.contention_free is None and self._contention_free is not None:
            constraints = replace(constraints, contention_free=self._contention_free)
        wish = constraints.undisturbed
        if wish is not None and self._foreign_default_routes:
            fix = "leave it out: the service does not make the default routes with UFM, nor with "
            fix += "[opensm] enforcement = chains"
            raise InvalidInput("constraints.undisturbed", wish.value, fix)
        if request.avoid:
            numbers = here.fabric.inventory.host_numbers
            if unknown := sorted(set(request.avoid) - numbers.keys()):
                fix = f"fabric {here.fabric.id} has no host of this name"
                raise InvalidInput("constraints.avoid_hosts", ", ".join(unknown), fix)
            avoid = constraints.avoid_hosts.union(numbers[name] for name in request.avoid)
            constraints = replace(constraints, avoid_hosts=avoid)
        if not constraints.names:
            return None
        check_constraints(here.ledger, constraints)
        return constraints


def hosts_wanted(
    asked: AllocationRequest, policy: Policy, ledger: LedgerView, constraints: Constraints | None
) -> int:
    """How many hosts are asked for. Raises: InvalidInput, as ``hosts_of_domains``."""
    if constraints is None or constraints.domains is None:
        return asked.hosts
    return hosts_of_domains(policy, ledger, constraints, asked.hosts or None)


def check_hosts(asked: AllocationRequest) -> None:
    """Return if the request says how many hosts. Raises: InvalidInput."""
    by_domain = asked.constraints is not None and asked.constraints.domains is not None
    if asked.hosts < 1 and not by_domain:
        raise InvalidInput("hosts", asked.hosts, "ask for at least 1 host")


def check_enterable(record: Enclosing, asked: AllocationRequest, what: str) -> None:
    """Return if an allocation may be made inside another one. Raises: InvalidInput."""
    if asked.fabric and asked.fabric != record.fabric:
        raise InvalidInput("fabric", asked.fabric, f"the {what} on {record.fabric}")
    if record.state not in ENTERABLE:
        fix = f"it is {record.state.value}; name one that is active"
        raise InvalidInput("parent", record.id, fix)


def choose(names: Collection[str], kind: str) -> str:
    """The fix for a name that is missing or unknown."""
    return f"name a {kind} out of: {', '.join(sorted(names))}"
