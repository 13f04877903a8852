# SPDX-License-Identifier: Apache-2.0

"""Log context: the id of the request that a thread works for, in each of its log lines."""

from collections.abc import Iterator
from contextlib import contextmanager

from oslo_context import context

from laas_service.messages import Initiator


@contextmanager
def acting_for(who: Initiator | None) -> Iterator[None]:
    """Log with the request, user and project of ``who``; with None, with none. May be nested."""
    outer = context.get_current()
    context._request_store.context = None  # the library has no call that removes a context
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
        context._request_store.context = outer
