# SPDX-License-Identifier: Apache-2.0

"""``laas-status upgrade check``: whether a release can be started on what is there.

Looks and changes nothing. Exit status 0: ready. 1: look at the warnings. 2: it must not be
started before what failed is mended. 255: it could not be found out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from oslo_config import cfg
from oslo_log import log as logging
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.common_checks import check_policy_json
from oslo_upgradecheck.upgradecheck import Code, Result

from laas_service import conf as options
from laas_service.api.auth import middleware
from laas_service.app.lifecycle import State
from laas_service.app.ports.allocations import every_allocation
from laas_service.cmd import api
from laas_service.conf import review
from laas_service.domain.errors import LaasError, NotFound
from laas_service.wiring import Parts
from opensm_writer.local import LocalSubnetManager

Finding = tuple[Code, str]
"""What was found, and how bad it is; a success is worth knowing."""


def main(argv: list[str] | None = None) -> int:
    """Carry out ``upgrade check``."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    checks = Checks(conf)
    words = sys.argv[1:] if argv is None else argv
    try:
        return int(upgradecheck.main(conf, "laas", checks, words))
    except (cfg.Error, LaasError, OSError) as error:
        print(f"laas-status: {error}", file=sys.stderr)
        return 255


class Checks(upgradecheck.UpgradeCommands):
    """One table row each; a check that cannot look says so instead of being well."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def check(self) -> Code:
        """Carry out all checks; what is logged meanwhile stays out of the table."""
        logging.setup(self._conf, "laas-status")
        self._parts = Parts(self._conf)
        return super().check()

    def _current(self) -> bool:
        """Whether the tables are such that the other checks can read them."""
        current, head = self._parts.database_revisions()
        return current == head

    def options(self) -> Iterator[Finding]:
        for text in review.wrong_values(self._conf):
            yield Code.FAILURE, text
        for text in review.remarks(self._conf, api.CLI):
            yield Code.WARNING, text

    def harmony(self) -> Iterator[Finding]:
        """Options that are well alone and not together."""
        conf = self._conf
        wanted: list[Callable[[], object]] = [
            lambda: middleware(conf.api.auth_strategy, conf.api.bind_host, conf)(_nothing),
            lambda: self._parts.subnet_manager,
            lambda: self._parts.use_cases(wake=lambda: None),
        ]
        for part in wanted:
            try:
                part()
            except LaasError as error:
                yield Code.FAILURE, str(error)
        api, worker = conf.api, conf.worker
        if api.default_policy not in api.enabled_policies:
            offered = ", ".join(api.enabled_policies)
            yield (
                Code.FAILURE,
                f"[api] default_policy = {api.default_policy} is none of enabled_policies; "
                f"choose among {offered}",
            )
        if api.max_waiters >= api.threads:
            yield (
                Code.WARNING,
                f"[api] max_waiters = {api.max_waiters} lets requests that wait hold all "
                f"{api.threads} threads; keep it below [api] threads",
            )
        if worker.retry_last < worker.retry_first:
            yield (
                Code.WARNING,
                f"[worker] retry_last = {worker.retry_last} is below retry_first = "
                f"{worker.retry_first}; every pause is retry_last",
            )

    def schema(self) -> Iterator[Finding]:
        current, head = self._parts.database_revisions()
        if current != head:
            yield (
                Code.FAILURE,
                f"the database is at revision {current or 'none'}, this release needs {head}; "
                "run laas-manage db upgrade",
            )

    def fabrics(self) -> Iterator[Finding]:
        wanted, found = self._conf.api.default_fabric, [f.id for f in self._parts.store.fabrics()]
        if wanted is not None and wanted not in found:
            yield (
                Code.FAILURE,
                f"[api] default_fabric = {wanted} is not managed; import it, or name one of "
                f"{', '.join(found) or 'none'}",
            )

    def allocations(self) -> Iterator[Finding]:
        for record in every_allocation(self._parts.store, states=[State.ERROR]):
            yield (
                Code.WARNING,
                f"allocation {record.id} is in error: {record.error}; laas allocation retry or "
                "delete it",
            )

    def routes(self) -> Iterator[Finding]:
        """Whether this release can render what is recorded, and would leave tenants alone."""
        manager = self._parts.subnet_manager
        if not isinstance(manager, LocalSubnetManager):
            return
        for fabric in self._parts.store.fabrics():
            try:
                disturbed = manager.rehearse(self._parts.store.routed(fabric.id))
            except LaasError as error:
                yield Code.FAILURE, f"fabric {fabric.id} cannot be published: {error}"
                continue
            if disturbed:
                yield (
                    Code.WARNING,
                    f"fabric {fabric.id}: entries of tenants that did not change would change "
                    f"({', '.join(disturbed)}); publish anew when their traffic may stop for a "
                    "moment: remove the 'current' link",
                )

    def records(self) -> Iterator[Finding]:
        for text in self._parts.database_findings():
            yield Code.FAILURE, text

    def leases(self) -> Iterator[Finding]:
        for fabric in self._parts.store.fabrics():
            holding = self._parts.store.holding(fabric.id)
            if holding.problem:
                yield Code.WARNING, f"fabric {fabric.id}: {holding.problem}"
            if holding.worker is not None:
                yield (
                    Code.SUCCESS,
                    f"fabric {fabric.id} is held by worker {holding.worker} until {holding.until}",
                )

    def nova(self) -> Iterator[Finding]:
        options = self._conf.compute
        if options.kind != "nova":
            return
        unknown = [id for id in self._parts.compute.handed_over() if not self._recorded(id)]
        for id in sorted(unknown):
            yield (
                Code.WARNING,
                f"hosts are handed over to allocation {id}, which is not recorded",
            )
        filters = "AggregateMultiTenancyIsolation"
        if not options.one_allocation_per_project:
            filters += " and LaasTenantFilter"
        yield (
            Code.SUCCESS,
            f"Nova answers; it tells nobody which filters its schedulers run: see there that "
            f"{filters} are in enabled_filters, and that limit_tenants_to_placement_aggregate "
            "is set",
        )

    def _recorded(self, id: str) -> bool:
        try:
            return bool(self._parts.store.allocation(id))
        except NotFound:
            return False

    def policy(self) -> Result:
        return check_policy_json(self, self._conf)


def _nothing(environ: object, start_response: object) -> list[bytes]:
    """The application that nobody is going to ask."""
    return []


def _row(look: Callable[[Checks], Iterator[Finding]], tables: bool) -> Callable[[Checks], Result]:
    """A check as the library wants it: all findings as one, as bad as the worst."""

    def run(checks: Checks) -> Result:
        try:
            if tables and not checks._current():
                return Result(Code.WARNING, "not looked at, as the tables are not current")
            found = list(look(checks))
        except (LaasError, cfg.Error, OSError) as error:
            return Result(Code.FAILURE, str(error))
        worst = max((code for code, _ in found), default=Code.SUCCESS)
        return Result(worst, "; ".join(text for _, text in found) or None)

    return run


Checks._upgrade_checks = (
    ("Options", _row(Checks.options, tables=False)),
    ("Options together", _row(Checks.harmony, tables=False)),
    ("Policy file", Checks.policy),
    ("Database schema", _row(Checks.schema, tables=False)),
    ("Records", _row(Checks.records, tables=True)),
    ("Fabrics", _row(Checks.fabrics, tables=True)),
    ("Allocations", _row(Checks.allocations, tables=True)),
    ("Routes", _row(Checks.routes, tables=True)),
    ("Workers", _row(Checks.leases, tables=True)),
    ("Nova", _row(Checks.nova, tables=True)),
)


if __name__ == "__main__":
    sys.exit(main())
