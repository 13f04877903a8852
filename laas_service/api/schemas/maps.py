# SPDX-License-Identifier: Apache-2.0

"""Schema of the map of a fabric."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from laas_service.api.schemas.allocations import ConfirmedShown
from laas_service.api.schemas.base import Schema
from laas_service.api.schemas.fabrics import CrossedBy, CrossedMore, RiskFitAnswer
from laas_service.app.lifecycle import State
from laas_service.domain.allocation import Refusal
from laas_service.domain.moves.consent import Movable

Cells = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*=*$")]
"""Base64, one number a cell, by rows."""


class MapTree(Schema):
    """XGFT(3; m1,m2,m3; 1,w2,w3) with bundles of parallel cables, and the rails of its hosts."""

    m: tuple[int, int, int]
    w: tuple[int, int, int]
    cables: tuple[int, int]
    rails: int


class Matrix(Schema):
    """One row a switch, one column a port: hosts on leaves, leaf links, or spine links."""

    rows: int
    columns: int
    owner: Cells
    """Two bytes a cell, little-endian. 0: no cable; 1: free; 2: of others; 3: of the common plane;
    from 4 on: the tenants in the order of `tenants`."""
    state: Cells
    """One byte a cell. 0: no cable; 1: up; 2: drained; 3: failed."""
    load: Cells
    """One byte a cell: percent that allocations hold; 255: not shown."""


class LinkMatrix(Matrix):
    lower: Cells
    """Two bytes a cell: the port at the lower switch."""
    upper: Cells
    """Two bytes a cell: the port at the upper switch."""


class Matrices(Schema):
    hosts: Matrix
    leaf: LinkMatrix
    spine: LinkMatrix


class SharedCells(Schema):
    leaf: dict[int, list[int]]
    spine: dict[int, list[int]]


SwitchNames = list[tuple[str, str]]


class MapSwitches(Schema):
    """Name and GUID of the switch of each row; empty where the caller may not see them."""

    leaf: SwitchNames
    l2: SwitchNames
    spine: SwitchNames


class MapTenant(Schema):
    id: str
    name: str
    """Empty if the caller may not see the allocation."""
    project: str
    """Empty with `name`."""
    state: State
    requested: int
    policy: str
    shape: str | None
    parent: str | None
    degraded: bool
    crossed_by: CrossedBy = None
    changing: bool
    confirmed: ConfirmedShown
    error: str | None
    """Why its last step failed or has to wait; null if neither, and if `name` is hidden."""
    updated_at: AwareDatetime
    """When it last changed."""
    created_at: AwareDatetime
    ends_at: AwareDatetime | None
    movable: Movable
    """Its consent to moves."""
    moves_at: AwareDatetime | None
    """When its announced move begins; null: none is announced."""
    hosts: int
    leaf_links: int
    spine_links: int
    drawing: str
    """The tenant's own tree, an SVG document."""


class MapUsage(Schema):
    total: int
    allocated: int
    free: int
    failed: int
    drained: int
    withheld: int


class MapCounts(Schema):
    hosts: MapUsage
    leaf_links: MapUsage
    spine_links: MapUsage


class MapWaiting(Schema):
    id: str
    name: str
    requested: int
    duration: float | None
    position: int
    expected_start: AwareDatetime | None
    detail: str | None


class Fault(Schema):
    kind: Literal["host", "link", "switch"]
    name: str
    state: str
    source: str | None
    since: AwareDatetime | None
    evidence: str | None
    reason: str | None


class MarkedCells(Schema):
    hosts: list[int]
    leaf: list[int]
    spine: list[int]


class MapQuestion(Schema):
    """Whether a size fits; where it lies, now or after the changes that are listed."""

    hosts: int
    """0 if slots were asked for."""
    slots: int | None = None
    policy: str
    fits: bool
    largest_fit: int
    cut_off: bool = False
    """The searches stopped at the budget of the request: more may fit."""
    risks: list[RiskFitAnswer] = []
    """Of slots: further tenants that would fit, by risk."""
    shape: str | None = None
    crossed_by: CrossedBy = None
    crossed_more: CrossedMore = None
    reason: Refusal | None = None
    detail: str | None = None
    cells: MarkedCells | None = None
    releases: list[str] = []
    undrain: list[str] = []
    """Names of drained hosts to use again."""
    moves: list[str] = []
    """Ids of allocations to move instead."""
    moved_hosts: int = 0


class MapPromise(Schema):
    """What a link promises in one direction to those who share hosts, in Gb/s."""

    direction: Literal["up", "down"]
    bandwidth: float
    """Bandwidth of the link that may be promised."""
    promised: float
    outage: float
    """Probability of demands above it, at the highest."""
    measured: float | None
    """Null if its counters were not read."""


class MapPromises(Schema):
    """By cell."""

    hosts: dict[int, list[MapPromise]]
    leaf: dict[int, list[MapPromise]]
    spine: dict[int, list[MapPromise]]


class FabricMap(Schema):
    """What the fabric page shows."""

    form: int
    fabric: str
    generation: int
    at: AwareDatetime
    everything: bool
    """Whether the caller sees all tenants."""
    tree: MapTree
    matrices: Matrices
    shared: SharedCells
    """Cells with several owners."""
    promises: MapPromises
    """On hosts that a shown allocation shares."""
    switches: MapSwitches
    hosts: list[tuple[str, list[int], list[str]]]
    """Name, cell on each rail, and port GUIDs of each host that is shown."""
    tenants: list[MapTenant]
    counts: MapCounts
    series: list[tuple[AwareDatetime, int]]
    """Moments, and the hosts that the shown allocations held from then on, as requested: the newest
    changes, and now."""
    queue: list[MapWaiting]
    faults: list[Fault]
    question: MapQuestion | None
