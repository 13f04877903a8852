# SPDX-License-Identifier: Apache-2.0

"""Agents beside OpenSM: their reports, and the files that they fetch."""

from laas_service.api import schemas
from laas_service.api.resource import Answer, Call, page


def report(call: Call, fabric_id: str, agent: str, body: schemas.AgentReport) -> Answer:
    """Report the state of OpenSM and the switches; answers with the wanted generation."""
    agents = call.use_cases.agents
    orders = agents.report(fabric_id, agent, body.seen(agents.now().timestamp()))
    return Answer(200, schemas.AgentOrders.of(orders))


def index(call: Call, fabric_id: str, query: schemas.Paging) -> Answer:
    """List a fabric's agents, and what each reported last."""
    shown, following = page(
        call, query, call.use_cases.agents.agents(fabric_id), lambda agent: agent.name
    )
    behind = call.use_cases.agents.behind(fabric_id)
    held = call.use_cases.agents.holding_up(fabric_id)
    return Answer(200, schemas.AgentList.of(shown, behind, held, following))


def forget(call: Call, fabric_id: str, agent: str) -> Answer:
    """Forget an agent whose OpenSM is gone for good: nothing is held for it any longer."""
    gone = call.use_cases.agents.forget(call.caller, fabric_id, agent)
    return Answer(200, schemas.AgentAnswer.of(gone, behind=False))


def file_set(call: Call, fabric_id: str, headers: schemas.FormHeader) -> Answer:
    """Show the file set for the state that is wanted now."""
    wanted = call.use_cases.agents.file_set(fabric_id, headers.laas_set_form)
    return Answer(200, schemas.FileSetAnswer.model_validate(wanted))


def file(
    call: Call, fabric_id: str, generation: str, file: str, headers: schemas.FileHeaders
) -> Answer:
    """Fetch a file of a set, or the range of its bytes that the headers name."""
    path = call.use_cases.agents.file(fabric_id, generation, file, headers.laas_set_form)
    return Answer(200, schemas.Octets(path))
