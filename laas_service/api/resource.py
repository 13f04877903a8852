# SPDX-License-Identifier: Apache-2.0

"""Routes, calls and answers: the values between the WSGI application and the views."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import dropwhile, islice
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlencode

from pydantic import BaseModel

from laas_service.api import policies
from laas_service.api.microversions import Microversion
from laas_service.api.schemas import AT_ONCE, Paging
from laas_service.api.session_cookies import Visit
from laas_service.app.allocation_views import AllocationViews
from laas_service.app.allocations import AllocationUseCases
from laas_service.app.changes import ChangeUseCases
from laas_service.app.components import ComponentUseCases
from laas_service.app.fabrics import FabricUseCases
from laas_service.app.records import AllocationRecord, Caller
from laas_service.app.use_cases import UseCases
from laas_service.domain.errors import Forbidden, InvalidInput

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body and headers; the fields of ``without`` are left out of the body.

    A body that is called is made when it is needed: all answers with the same ``ETag`` share it.
    """

    status: int
    body: BaseModel | Callable[[], BaseModel]
    headers: Mapping[str, str] = field(default_factory=dict)
    without: Mapping[str, Any] | None = None
    """As pydantic's ``exclude``."""


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated and authorised request, as a view gets it.

    ``url`` is the absolute address without query; ``arguments`` are the query as sent.
    ``version`` is the microversion asked for. ``local``: the caller is not authenticated.
    ``visit`` signs in and out; None where there are no logins.
    ``require`` raises ``Forbidden`` unless the caller passes a further rule;
    ``scrape`` gives the metrics in Prometheus' text format.
    """

    use_cases: UseCases
    caller: Caller
    root: str
    url: str
    arguments: Mapping[str, str]
    max_wait: float
    version: Microversion
    local: bool
    visit: Visit | None
    require: Callable[[str], None]
    scrape: Callable[[], str]

    @property
    def allocations(self) -> AllocationUseCases:
        return self.use_cases.allocations

    @property
    def changes(self) -> ChangeUseCases:
        return self.use_cases.changes

    @property
    def views(self) -> AllocationViews:
        return self.use_cases.views

    @property
    def components(self) -> ComponentUseCases:
        return self.use_cases.components

    @property
    def fabrics(self) -> FabricUseCases:
        return self.use_cases.fabrics

    def allows(self, rule: str) -> bool:
        """Whether the caller passes a further rule."""
        try:
            self.require(rule)
        except Forbidden:
            return False
        return True

    def may_name(self, project_id: str) -> bool:
        """Whether the caller may see names of a project's allocations, and which project it is."""
        if self.caller.admin:
            return True
        return project_id == self.caller.project_id and self.allows(policies.SHOW)

    def outcome(self, record: AllocationRecord, seconds: float) -> AllocationRecord:
        """The allocation once convergence has no further step, or when the time is up."""
        if seconds <= 0:
            return record
        return self.allocations.outcome(self.caller, record.id, min(seconds, self.max_wait))

    def next_page(self, marker: str) -> str:
        """The address of the page after ``marker``, with the same filters."""
        return f"{self.url}?{urlencode({**self.arguments, 'marker': marker})}"


@dataclass(frozen=True)
class Operation:
    """One operation.

    ``view`` takes the ``Call``, the path's variables by name, and ``query``, ``headers`` and
    ``body`` as the schemas in its annotations describe them. ``rule`` is an oslo.policy rule;
    without one no token is needed. ``nobody``: the rule is checked for callers without a token,
    too, and may admit them.
    """

    method: str
    path: str
    view: Callable[..., Answer]
    rule: str | None
    answers: Mapping[int, type[BaseModel]]
    nobody: bool = False

    @cached_property
    def takes(self) -> dict[str, type[BaseModel]]:
        """The schemas of the query, headers and body, as the view annotates them."""
        hints = get_type_hints(self.view)
        return {part: hints[part] for part in ("query", "headers", "body") if part in hints}

    @property
    def changes_an_allocation(self) -> bool:
        """Whether it changes an allocation that exists, and does not release it."""
        return "allocation_id" in self.variables and self.method in ("PATCH", "POST", "PUT")

    @property
    def versioned(self) -> bool:
        """Whether requests may ask for a microversion."""
        return self.rule is not None and self.path.startswith("/v1/")

    @property
    def variables(self) -> list[str]:
        """The names in the path, such as ``fabric_id``."""
        return re.findall(r"<(?:\w+:)?(\w+)>", self.path)

    @property
    def template(self) -> str:
        """The path in OpenAPI's notation."""
        return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", self.path)


def page(
    call: Call,
    query: Paging,
    items: Iterable[Item],
    key: Callable[[Item], str],
    wanted: Callable[[Item], bool] = lambda item: True,
) -> tuple[list[Item], str | None]:
    """The wanted items after the marker, and the address of the next page.

    The marker is searched for before filtering: an item that stopped matching
    between two pages still marks its place.

    Raises:
        InvalidInput: no item has the marker's key.
    """
    rest = iter(items)
    if query.marker is not None:
        rest = dropwhile(lambda item: key(item) != query.marker, rest)
        if next(rest, None) is None:
            raise InvalidInput("marker", query.marker, "use the last item of the page before")
    limit = min(query.limit, AT_ONCE)
    shown = list(islice(filter(wanted, rest), limit + 1))
    if len(shown) <= limit:
        return shown, None
    return shown[:limit], call.next_page(key(shown[limit - 1]))
