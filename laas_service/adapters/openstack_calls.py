# SPDX-License-Identifier: Apache-2.0

"""Calls to the services of OpenStack, with the errors of their libraries translated."""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from keystoneauth1 import exceptions as keystone_errors
from tenacity import wait_exponential

from laas_service.app.retries import retrying
from laas_service.domain.errors import Forbidden, LaasError, LimitExceeded, Unavailable

READ_PAUSE = 0.1
"""Seconds before the first retry of a read; doubled before the second."""

REFUSALS = (400, 404, 409)
"""The statuses of answers that refuse a write in the present state."""

T = TypeVar("T")
R = TypeVar("R")


class Calls:
    """Reads are tried up to three times, writes once.

    Each call starts with ``beat``, which gets its name, and whose exceptions abort the operation.

    Errors of all methods:
        Unavailable: time-out, broken connection, 5xx, or an invalid answer; a write may
            have been carried out.
        Forbidden: the service's user lacks the permission that the message names.
        LimitExceeded: the service limits the rate or size of requests.
    """

    service: ClassVar[str]
    """The service that is called."""

    grant: ClassVar[str]
    """The words before a permission in the advice to grant it."""

    def __init__(self, beat: Callable[[str], None] = lambda action: None) -> None:
        self._beat = beat

    def _read(self, action: str, rule: str, call: Callable[[], T]) -> T:
        """Make a call that reads, up to three times."""
        self._beat(action)

        def attempt() -> T:
            try:
                return call()
            except Exception as error:
                raise self._translated(action, rule, error) from error

        pause = wait_exponential(multiplier=READ_PAUSE)
        return retrying(Unavailable, attempts=3, wait=pause)(attempt)

    def _write(
        self, action: str, rule: str, call: Callable[[], T], parse: Callable[[T], R]
    ) -> R | str:
        """Make a call that writes, once; what it answers, or the text of a refusal."""
        self._beat(action)
        try:
            return parse(call())
        except Exception as error:
            if self._status(error) in REFUSALS:
                return self._reason(error)
            raise self._translated(action, rule, error) from error

    def _status(self, error: Exception) -> int | None:
        """The HTTP status of an error; None if it has none."""
        return error.http_status if isinstance(error, keystone_errors.HttpError) else None

    def _reason(self, error: Exception) -> str:
        """The text of a refusal."""
        return str(error)

    def _translated(self, action: str, rule: str, error: Exception) -> LaasError:
        """The error of ours for one of the libraries; its message holds no token or password.

        Any other exception means that the libraries could not parse an answer.
        """
        status = self._status(error)
        if status == 403:
            return Forbidden(
                f"not allowed to {action}: give the service's user {self.grant} {rule}"
            )
        if status in (413, 429):
            return LimitExceeded(f"cannot {action}: {error}")
        if status == 401:
            return Unavailable(
                f"cannot {action}: Keystone or {self.service} does not accept the configured login"
            )
        if status is not None or isinstance(error, keystone_errors.ClientException):
            return Unavailable(f"cannot {action}: {error}")
        return Unavailable(
            f"cannot {action}: the answer is invalid ({type(error).__name__}: {error})"
        )
