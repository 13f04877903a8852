# SPDX-License-Identifier: Apache-2.0

"""Quotas: what a project may have, and has."""

from laas_service.api import schemas
from laas_service.api.resource import Answer, Call


def show(call: Call, query: schemas.QuotaQuery) -> Answer:
    """Show what the own project may have and has; administrators may name another."""
    return Answer(
        200, schemas.QuotaAnswer.of(call.use_cases.quotas.usage(call.caller, query.project_id))
    )
