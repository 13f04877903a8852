# SPDX-License-Identifier: Apache-2.0

"""What the service remembers of a UFM: requests under way, withdrawn memberships, marked ports."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from sqlalchemy import Engine, delete, func, insert, select, tuple_, update
from sqlalchemy.orm import Session

from laas_service.adapters.db import models
from laas_service.adapters.db.clock import database_clock
from laas_service.adapters.db.engine import translated, write_transaction
from laas_service.adapters.ufm.memory import Membership, PartitionRequest, UnderWay
from laas_service.domain.errors import Conflict
from laas_service.domain.inventory import PortRef

MOST_WITHDRAWN = 100_000
"""Withdrawn memberships of a fabric that are remembered; those of the oldest generations go."""

_REQUEST, _WITHDRAWN, _MARK = models.UfmRequestRow, models.UfmWithdrawnRow, models.UfmMarkRow

_UNDER_WAY = select(_REQUEST).order_by(_REQUEST.id)


class SqlUfmMemory:
    """``adapters.ufm.memory.Memory``; ``clock`` is the database's, or a test's."""

    def __init__(
        self, engine: Engine, *, clock: Callable[[Session], datetime] = database_clock
    ) -> None:
        self._engine, self._clock = engine, clock

    def begin(self, request: PartitionRequest) -> int:
        fabric, pkey, generation = request.fabric, request.pkey, request.generation
        guids = sorted(map(_text, request.guids))
        of_these = _WITHDRAWN.fabric == fabric, _WITHDRAWN.pkey == pkey, _WITHDRAWN.guid.in_(guids)
        with write_transaction(self._engine) as session:
            if request.adds:
                newest = session.scalar(select(func.max(_WITHDRAWN.generation)).where(*of_these))
                if newest is not None and newest > generation:
                    raise Conflict(
                        f"generation {generation} comes late: generation {newest} withdrew what it "
                        f"would add to key {pkey:#06x} again"
                    )
            session.execute(delete(_WITHDRAWN).where(*of_these))
            if not request.adds:
                session.execute(
                    insert(_WITHDRAWN),
                    [
                        {"fabric": fabric, "pkey": pkey, "guid": guid, "generation": generation}
                        for guid in guids
                    ],
                )
                _forget_oldest(session, fabric)
            row = _REQUEST(
                fabric=fabric,
                pkey=pkey,
                adds=request.adds,
                guids=guids,
                generation=generation,
                asked_at=self._clock(session),
            )
            session.add(row)
            session.flush()
            return row.id

    def note_job(self, id: int, job: str) -> None:
        with write_transaction(self._engine) as session:
            session.execute(update(_REQUEST).where(_REQUEST.id == id).values(job=job[:255]))

    def end(self, ids: Collection[int]) -> None:
        with write_transaction(self._engine) as session:
            session.execute(delete(_REQUEST).where(_REQUEST.id.in_(ids)))

    def under_way(self, fabric: str) -> list[UnderWay]:
        with translated(), Session(self._engine) as session:
            rows = session.scalars(_UNDER_WAY.where(_REQUEST.fabric == fabric)).all()
            now = self._clock(session) if rows else None
            return [
                UnderWay(
                    row.id,
                    PartitionRequest(
                        fabric,
                        row.pkey,
                        row.adds,
                        frozenset(int(guid, 16) for guid in row.guids),
                        row.generation,
                    ),
                    row.job,
                    (now - row.asked_at).total_seconds(),
                )
                for row in rows
                if now is not None
            ]

    def withdrawn(self, fabric: str, pkeys: Collection[int]) -> Mapping[Membership, int]:
        query = select(_WITHDRAWN.pkey, _WITHDRAWN.guid, _WITHDRAWN.generation).where(
            _WITHDRAWN.fabric == fabric, _WITHDRAWN.pkey.in_(pkeys)
        )
        with translated(), Session(self._engine) as session:
            rows = session.execute(query).all()
        return {Membership(pkey, int(guid, 16)): generation for pkey, guid, generation in rows}

    def marked(self, fabric: str) -> frozenset[PortRef]:
        query = select(_MARK.guid, _MARK.port).where(_MARK.fabric == fabric)
        with translated(), Session(self._engine) as session:
            return frozenset(PortRef(int(guid, 16), port) for guid, port in session.execute(query))

    def mark(self, fabric: str, ports: Collection[PortRef]) -> None:
        if ports:
            rows = [{"fabric": fabric, "guid": _text(p.guid), "port": p.port} for p in ports]
            with write_transaction(self._engine) as session:
                session.execute(insert(_MARK), rows)

    def unmark(self, fabric: str, ports: Collection[PortRef]) -> None:
        if ports:
            places = [(_text(port.guid), port.port) for port in ports]
            with write_transaction(self._engine) as session:
                session.execute(
                    delete(_MARK).where(
                        _MARK.fabric == fabric, tuple_(_MARK.guid, _MARK.port).in_(places)
                    )
                )


def _forget_oldest(session: Session, fabric: str) -> None:
    of_fabric = _WITHDRAWN.fabric == fabric
    beyond = select(_WITHDRAWN.generation).where(of_fabric).order_by(_WITHDRAWN.generation.desc())
    last = session.scalar(beyond.offset(MOST_WITHDRAWN).limit(1))
    if last is not None:
        session.execute(delete(_WITHDRAWN).where(of_fabric, _WITHDRAWN.generation <= last))


def _text(guid: int) -> str:
    return f"{guid:#018x}"
