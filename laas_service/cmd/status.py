# SPDX-License-Identifier: Apache-2.0

"""``laas-status upgrade check``: check whether this release can start on this installation.

Changes nothing. Exit status 0: ready. 1: there are warnings. 2: fix the failures before you
start the release. 255: the checks could not run.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from oslo_config import cfg
from oslo_log import log as logging
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.common_checks import check_policy_json
from oslo_upgradecheck.upgradecheck import Code, Result

from laas_service.cmd import api
from laas_service.cmd.process import reason, registered
from laas_service.conf import review
from laas_service.domain.errors import Forbidden, LaasError, NotFound, Unavailable
from laas_service.domain.wording import listed
from laas_service.version import VERSION

if TYPE_CHECKING:
    from laas_service.adapters.nova import NovaCompute


class Finding(NamedTuple):
    """What a check found. A success has a text where it is worth reading."""

    code: Code
    why: str
    fix: str = ""
    """Empty where ``why`` tells it, as errors do."""

    def __str__(self) -> str:
        return f"{self.why}; {self.fix}" if self.fix else self.why


def main(argv: list[str] | None = None) -> int:
    """Carry out ``upgrade check``."""
    conf = registered()
    checks = UpgradeChecks(conf)
    words = sys.argv[1:] if argv is None else argv
    if "--version" in words:  # the library's command line has no version
        print(VERSION)
        return 0
    try:
        return int(upgradecheck.main(conf, "laas", checks, words))
    except (cfg.Error, LaasError, OSError, UnicodeDecodeError) as error:
        print(f"laas-status: {reason(error)}", file=sys.stderr)
        return 255


class UpgradeChecks(upgradecheck.UpgradeCommands):
    """The checks, one table row each. A check that cannot run reports that, not success."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> UpgradeChecks:
        """The checks of an installation, to be looked at one by one (``found``)."""
        made = cls(conf)
        made._connect()
        return made

    def _connect(self) -> None:
        from laas_service.wiring.composition import Composition

        self.parts = Composition(self._conf)

    def check(self) -> Code:
        """Run all checks. The log is set up first, so that log lines stay out of the table."""
        logging.setup(self._conf, "laas-status")
        self._connect()
        return super().check()

    def current(self) -> bool:
        """Whether this release works with the tables, so that the other checks can read them."""
        return not list(self.schema())

    def option_values(self) -> Iterator[Finding]:
        for text in review.wrong_values(self._conf):
            yield Finding(Code.FAILURE, text)
        for text in review.remarks(self._conf, api.CLI):
            yield Finding(Code.WARNING, text)

    def option_combinations(self) -> Iterator[Finding]:
        """Options whose values are valid alone but not together."""
        from laas_service.api.auth import middleware

        conf = self._conf
        builders: list[Callable[[], object]] = [
            lambda: middleware(conf.api.auth_strategy, conf.api.bind_host, conf)(
                lambda environ, start_response: []  # receives no request
            ),
            lambda: self.parts.subnet_managers.of_worker,
            lambda: self.parts.use_cases(wake=lambda: None),
        ]
        for build in builders:
            try:
                build()
            except LaasError as error:
                yield Finding(Code.FAILURE, str(error))
        api, worker = conf.api, conf.worker
        if api.default_policy not in api.enabled_policies:
            offered = ", ".join(api.enabled_policies)
            yield Finding(
                Code.FAILURE,
                f"[api] default_policy = {api.default_policy} is not in enabled_policies",
                f"choose one of {offered}",
            )
        if worker.retry_last < worker.retry_first:
            yield Finding(
                Code.WARNING,
                f"[worker] retry_last = {worker.retry_last} is below retry_first = "
                f"{worker.retry_first}; every pause is retry_last",
            )

    def schema(self) -> Iterator[Finding]:
        try:
            self.parts.store.check()
        except Unavailable as error:
            yield Finding(Code.FAILURE, str(error))

    def durability(self) -> Iterator[Finding]:
        for weak in self.parts.database.weak_settings():
            yield Finding(Code.WARNING, weak)

    def characters(self) -> Iterator[Finding]:
        for narrow in self.parts.database.narrow_characters():
            yield Finding(Code.WARNING, narrow)

    def fabrics(self) -> Iterator[Finding]:
        default = self._conf.api.default_fabric
        managed = [fabric.id for fabric in self.parts.store.fabrics.all()]
        if default is not None and default not in managed:
            yield Finding(
                Code.FAILURE,
                f"[api] default_fabric = {default} is not managed",
                f"import it, or name one of {', '.join(managed) or 'none'}",
            )

    def allocations(self) -> Iterator[Finding]:
        from laas_service.app.lifecycle import State
        from laas_service.app.ports.allocations import every_allocation

        for record in every_allocation(self.parts.store.allocations, states=[State.ERROR]):
            yield Finding(
                Code.WARNING,
                f"allocation {record.id} is in error: {record.error}",
                "laas allocation retry or delete it",
            )

    def projects(self) -> Iterator[Finding]:
        """Allocations whose project Keystone no longer has: nobody else releases them."""
        from laas_service.app.lifecycle import LIVE
        from laas_service.app.ports.allocations import every_allocation

        gone: dict[str, bool] = {}
        for record in every_allocation(self.parts.store.allocations, states=LIVE):
            project = record.project_id
            if project not in gone:
                gone[project] = self.parts.projects.is_gone(project)
            if gone[project]:
                yield Finding(
                    Code.WARNING,
                    f"allocation {record.id} belongs to project {project}, which Keystone does "
                    "not have",
                    "laas allocation delete it, with --force if servers are left",
                )

    def routes(self) -> Iterator[Finding]:
        """Whether this release can render the recorded routes without changing tenants' entries."""
        from opensm_writer.local import LocalSubnetManager

        manager = self.parts.subnet_managers.of_worker
        if not isinstance(manager, LocalSubnetManager):
            return
        for fabric in self.parts.store.fabrics.all():
            try:
                disturbed = manager.rehearse(self.parts.store.fabrics.routed(fabric.id))
            except LaasError as error:
                yield Finding(Code.FAILURE, f"fabric {fabric.id} cannot be published: {error}")
                continue
            if disturbed:
                yield Finding(
                    Code.WARNING,
                    f"fabric {fabric.id}: this release would change entries of unchanged tenants "
                    f"({', '.join(disturbed)})",
                    "to publish them, remove the 'current' link when their traffic may stop for a "
                    "moment",
                )

    def confirmation(self) -> Iterator[Finding]:
        if unread := self.parts.subnet_managers.unread_switches():
            yield Finding(Code.WARNING, unread)

    def records(self) -> Iterator[Finding]:
        for text in self.parts.database.findings():
            yield Finding(Code.FAILURE, text)

    def leases(self) -> Iterator[Finding]:
        for fabric in self.parts.store.fabrics.all():
            holding = self.parts.store.observations.holding(fabric.id)
            if holding.problem:
                yield Finding(Code.WARNING, f"fabric {fabric.id}: {holding.problem}")
            if holding.worker is not None:
                yield Finding(
                    Code.SUCCESS,
                    f"fabric {fabric.id} is held by worker {holding.worker} until {holding.until}",
                )

    def nova(self) -> Iterator[Finding]:
        options = self._conf.compute
        if options.kind != "nova":
            return
        from laas_service.adapters.nova import NovaCompute

        unknown = [id for id in self.parts.compute.handed_over() if not self._recorded(id)]
        for id in sorted(unknown):
            yield Finding(
                Code.WARNING,
                f"hosts are handed over to allocation {id}, which is not recorded",
                "delete its aggregate in Nova, or restore the database that has it",
            )
        compute = self.parts.compute
        yield from self._names()
        if isinstance(compute, NovaCompute) and (text := compute.checks.forged_rebuilds()):
            yield Finding(Code.WARNING, text)
        if isinstance(compute, NovaCompute):
            yield from _candidates(compute)
            if text := compute.checks.unmoved_servers():
                yield Finding(Code.SUCCESS, text)
            yield from _filter_interface()
        filters = "AggregateMultiTenancyIsolation"
        if not options.one_allocation_per_project:
            filters += " and LaasTenantFilter"
        yield Finding(
            Code.SUCCESS,
            f"Nova answers. Its API does not list the filters of its schedulers: check that "
            f"{filters} are in enabled_filters, and that limit_tenants_to_placement_aggregate "
            "is set",
        )

    def _names(self) -> Iterator[Finding]:
        """Hosts that Nova does not know, and those that have another name there."""
        for fabric in self.parts.store.fabrics.all():
            hosts = sorted(filter(None, fabric.inventory.host_names))
            seen = self.parts.compute.look(hosts) or {}
            other = [f"{host} is {s.name}" for host, s in seen.items() if s.name not in ("", host)]
            if other:
                yield Finding(
                    Code.SUCCESS,
                    f"fabric {fabric.id}: {len(other)} hosts have another name in Nova: "
                    f"{listed(other)}",
                )
            unknown = [host for host in hosts if host not in seen]
            if unknown:
                near = self.parts.compute.nearest(unknown)
                pair = next((host for host in unknown if host in near), None)
                like = f"; host {pair!r} nearly matches {near[pair]!r} there" if pair else ""
                yield Finding(
                    Code.WARNING,
                    f"fabric {fabric.id}: {len(unknown)} of {len(hosts)} hosts are unknown in "
                    f"Nova, so no new owner gets them{like}",
                    "pair them in [compute] host_names",
                )

    def ironic(self) -> Iterator[Finding]:
        from laas_service.adapters.ironic import IronicCompute
        from laas_service.adapters.nova import NovaCompute

        compute = self.parts.compute
        if not isinstance(compute, IronicCompute | NovaCompute) or compute.nodes is None:
            return
        hosts = {
            host
            for fabric in self.parts.store.fabrics.all()
            for host in fabric.inventory.host_names
            if host
        }
        problems, well = compute.nodes.findings(hosts)
        yield from (Finding(Code.WARNING, text) for text in problems)
        if isinstance(compute, NovaCompute) and (text := compute.checks.unread_memberships()):
            yield Finding(Code.WARNING, text)
        if well:
            yield Finding(Code.SUCCESS, well)

    def _recorded(self, id: str) -> bool:
        try:
            return bool(self.parts.store.allocations.get(id))
        except NotFound:
            return False

    def policy(self) -> Result:
        return check_policy_json(self, self._conf)


def _candidates(compute: NovaCompute) -> Iterator[Finding]:
    """Whether placement leaves hosts to projects without an allocation."""
    try:
        problem, found = compute.checks.candidates()
    except Forbidden as error:
        yield Finding(Code.WARNING, f"the candidates of other projects are not checked: {error}")
        return
    yield Finding(Code.WARNING, problem) if problem else Finding(Code.SUCCESS, found)


def _filter_interface() -> Iterator[Finding]:
    """Whether the filter fits the Nova in this environment, if there is one.

    It is imported in a process of its own, because an import of Nova may change this one.
    """
    if importlib.util.find_spec("nova") is None:
        yield Finding(
            Code.SUCCESS,
            "Nova is not installed here; run python3 -c 'import nova_filters.laas' with the "
            "interpreter of each nova-scheduler, which fails where the filter does not fit",
        )
        return
    command = [sys.executable, "-c", "import nova_filters.laas"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no error was printed").splitlines()[-1]
        yield Finding(Code.FAILURE, f"the scheduler filter cannot be loaded: {last}")


def found(checks: UpgradeChecks, check: Check) -> list[Finding]:
    """What one check finds; that it cannot run is a finding, too."""
    try:
        if check.tables and not checks.current():
            return [Finding(Code.WARNING, "not checked, because the schema is not current")]
        return list(check.look(checks))
    except (LaasError, cfg.Error, OSError) as error:
        return [Finding(Code.FAILURE, str(error))]


class Check(NamedTuple):
    name: str
    look: Callable[[UpgradeChecks], Iterator[Finding]]
    tables: bool
    """Whether it reads tables, which must be of this release then."""
    fix: str
    """What mends a finding that does not say so itself."""


CHECKS = (
    Check(
        "Options",
        UpgradeChecks.option_values,
        False,
        "correct it in laas.conf; laas.conf.sample explains each option",
    ),
    Check(
        "Options together",
        UpgradeChecks.option_combinations,
        False,
        "change one of the options in laas.conf",
    ),
    Check("Database schema", UpgradeChecks.schema, False, "run laas-manage db upgrade"),
    Check(
        "Database durability",
        UpgradeChecks.durability,
        False,
        "change the setting of the database server, and restart it",
    ),
    Check(
        "Database characters",
        UpgradeChecks.characters,
        False,
        "give the database a character set that holds every name",
    ),
    Check(
        "Records",
        UpgradeChecks.records,
        True,
        "restore the database from a backup, or report the contradiction",
    ),
    Check("Fabrics", UpgradeChecks.fabrics, True, "import the fabric"),
    Check("Allocations", UpgradeChecks.allocations, True, "laas allocation retry or delete it"),
    Check("Projects", UpgradeChecks.projects, True, "see that Keystone answers"),
    Check("Routes", UpgradeChecks.routes, True, "stay with the release that runs now"),
    Check(
        "Confirmation",
        UpgradeChecks.confirmation,
        False,
        "run laas-opensm-agent beside OpenSM, or install infiniband-diags here",
    ),
    Check("Workers", UpgradeChecks.leases, True, "start laas-worker, and read its log"),
    Check("Nova", UpgradeChecks.nova, True, "mend [nova] and [placement] in laas.conf"),
    Check("Ironic", UpgradeChecks.ironic, True, "mend [nova] in laas.conf; see install/ironic"),
)


def _row(check: Check) -> Callable[[UpgradeChecks], Result]:
    """A check as the library expects it: one result with all texts and the worst severity."""

    def run(checks: UpgradeChecks) -> Result:
        findings = found(checks, check)
        worst = max((finding.code for finding in findings), default=Code.SUCCESS)
        return Result(worst, "; ".join(map(str, findings)) or None)

    return run


_ROWS = [(check.name, _row(check)) for check in CHECKS]
UpgradeChecks._upgrade_checks = (
    *_ROWS[:2],
    ("Policy file", UpgradeChecks.policy),
    *_ROWS[2:],
)


if __name__ == "__main__":
    sys.exit(main())
