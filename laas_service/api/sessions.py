# SPDX-License-Identifier: Apache-2.0

"""Signing in and out of the fabric page; no token needed."""

from laas_service.api import schemas
from laas_service.api.resource import Answer, Call
from laas_service.api.session_cookies import Visit, login_of
from laas_service.domain.errors import Forbidden

PRIVATE = {"Cache-Control": "no-store"}


def sign_in(call: Call, body: schemas.NewSession) -> Answer:
    """Begin a session of the fabric page: its token lies encrypted in a cookie."""
    session = _visit(call).begin(login_of(body.model_dump()))
    shown = schemas.SessionAnswer(
        secret=session.secret,
        user=session.user,
        project=session.project,
        roles=list(session.roles),
        expires_at=session.expires_at,
    )
    return Answer(201, shown, {**PRIVATE, "Set-Cookie": session.cookie})


def sign_out(call: Call) -> Answer:
    """End the session of the fabric page, and revoke its token."""
    cookie = _visit(call).end()
    return Answer(200, schemas.SessionEnded(ended=True), {**PRIVATE, "Set-Cookie": cookie})


def _visit(call: Call) -> Visit:
    if call.visit is None:
        raise Forbidden("this service has no logins: nobody signs in")
    return call.visit
