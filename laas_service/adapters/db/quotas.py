# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""What a project has, counted in the transaction that gives it more."""

from __future__ import annotations

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.app.records import NO_LIMITS, NewAllocation, State
from laas_service.domain.errors import QuotaExceeded

FIX = "it may have {most}; release some, or ask an administrator for more ([limits])"


def lock(session: Session, new: NewAllocation) -> None:
    """Let nobody else admit for the project, on any fabric, before this transaction ends.

    It has to be the transaction's first step, so that what is read then is as fresh. The
    rows of all fabrics are locked in one order; who locks one alone waits for nobody.
    """
    if new.limits != NO_LIMITS:
        table = models.Fabric
        session.execute(select(table.generation).order_by(table.id).with_for_update()).all()


def check(session: Session, new: NewAllocation) -> None:
    """Return if the project stays within its limits.

    Raises:
        QuotaExceeded: it would not; names what there would be too many of.
    """
    if new.limits == NO_LIMITS:
        return
    table = models.Allocation
    outside = case((table.parent.is_(None), table.hosts), else_=0)
    live = (table.project_id == new.project_id, table.state != State.RELEASED.value)
    allocations, hosts = session.execute(
        select(func.count(), func.coalesce(func.sum(outside), 0)).where(*live)
    ).one()
    _hold("allocations", allocations + 1, new.limits.allocations)
    if new.parent is None:
        _hold("hosts", int(hosts) + new.hosts, new.limits.hosts)


def _hold(field: str, value: int, most: int | None) -> None:
    if most is not None and value > most:
        raise QuotaExceeded(field, value, FIX.format(most=most))
