# SPDX-License-Identifier: Apache-2.0

"""Repeats steps that may be repeated."""

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random
from tenacity.wait import wait_base

from laas_service.domain.errors import ConcurrentUpdate


def retrying(*errors: type[Exception], attempts: int, wait: wait_base) -> Retrying:
    """Calls a step up to ``attempts`` times while it raises one of ``errors``.

    It pauses by ``wait`` in between. The error of the last attempt, and any other error, is
    raised as it is.
    """
    return Retrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(attempts),
        wait=wait,
        reraise=True,
    )


REPEATED = retrying(ConcurrentUpdate, attempts=5, wait=wait_random(0, 0.02))
"""Repeats a step if another request changed the same record first."""
