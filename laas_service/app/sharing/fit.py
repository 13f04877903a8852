# SPDX-License-Identifier: Apache-2.0

"""Whether slots of shared hosts would fit now, and what another risk would give."""

from collections.abc import Sequence

from laas_service.app.requests import MOST_RISKS, Fit, RiskFit
from laas_service.domain.allocation import NoFit, Request, SlotDemand
from laas_service.domain.budget import RequestBudget
from laas_service.domain.errors import InvalidInput
from laas_service.domain.ledger import LedgerView
from laas_service.domain.sharing.policy import SharedSlots

MOST_TENANTS = 50
"""Further tenants that are placed at most, at each risk."""


def slot_fit(
    slots: SharedSlots,
    ledger: LedgerView,
    demand: SlotDemand,
    budget: RequestBudget,
    risks: Sequence[float] = (),
) -> Fit:
    """Whether the demand fits on the shared hosts that the ledger is of.

    With ``risks``, also how many further tenants with this demand fit at each of them and at the
    risk that the links have. Each risk may use an equal part of what is left of ``budget``, which
    bounds all searches.

    Raises:
        InvalidInput: a risk is not above 0 and at most 0.5, or there are too many.
    """
    assert ledger.part is not None
    if len(risks) > MOST_RISKS:
        raise InvalidInput("risks", len(risks), f"name at most {MOST_RISKS}")
    asked = sorted({*risks, ledger.part.terms.risk}) if risks else []
    with budget.portion(2 if asked else 1):
        answer = slots.propose(ledger, Request("", 0, slots=demand, budget=budget))
        largest = answer.largest_fit if isinstance(answer, NoFit) else None
        if largest is None:
            largest = slots.largest(ledger, demand, budget)
    cut_off = budget.cut or (isinstance(answer, NoFit) and answer.cut_off)
    found = []
    for number, risk in enumerate(asked):
        budget.cut = False
        with budget.portion(len(asked) - number):
            tenants = slots.tenants(ledger, demand, risk, MOST_TENANTS, budget)
        found.append(RiskFit(risk, tenants, budget.cut or tenants == MOST_TENANTS))
        cut_off |= budget.cut
    return Fit(answer, largest, cut_off, None, tuple(found))
