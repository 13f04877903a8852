# SPDX-License-Identifier: Apache-2.0

"""Whose request a piece of work is for: what its thread logs meanwhile has that request's id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oslo_context import context

from laas_service.messages import Initiator


@contextmanager
def acting_for(who: Initiator | None) -> Iterator[None]:
    """Inside, oslo.log shows who asked; with None, that nobody did. May be nested."""
    before = context.get_current()
    context._request_store.context = None  # the library can set one, but not take it away
    if who is not None:
        context.RequestContext(
            request_id=who.request_id,
            user_id=who.user_id,
            project_id=who.project_id,
            overwrite=True,
        )
    try:
        yield
    finally:
        context._request_store.context = before
