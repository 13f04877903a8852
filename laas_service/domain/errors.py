# SPDX-License-Identifier: Apache-2.0

"""The one exception tree: callers' mistakes, lost races, and broken invariants.

"No room" is not here: a refusal is an answer (``allocation.NoFit``), not an
exception. Each class has a stable ``code`` that the API publishes; one table
in ``laas_service.api.errors`` gives each class its HTTP status.
"""

from __future__ import annotations


class LaasError(Exception):
    """Root of every error this project raises on purpose."""

    code = "error"


class InvalidInput(LaasError):
    """A value from outside is wrong; says which field, the value and the fix."""

    code = "invalid_input"

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        shown = field if field.isprintable() else repr(field)  # it may be a key of theirs
        super().__init__(f"{shown}: {value!r} is not valid; {fix}")


class InvalidFile(LaasError):
    """A file is not what it should be; says which line and why."""

    code = "invalid_file"

    def __init__(self, source: str, line: int, why: str) -> None:
        self.source = source
        self.line = line
        self.why = why
        super().__init__(f"{source}, line {line}: {why}")


class QuotaExceeded(LaasError):
    """A project would have more than it may; says of what, how much that would be, the fix."""

    code = "quota_exceeded"

    def __init__(self, field: str, value: int, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        super().__init__(f"{field}: the project would have {value}; {fix}")


class TooManyRequests(LaasError):
    """The project asks faster than it may; ``after`` seconds it may ask again."""

    code = "too_many_requests"

    def __init__(self, after: float) -> None:
        self.after = after
        super().__init__(f"too many requests; ask again after {after:.3g} seconds")


class NotFound(LaasError):
    """What was named does not exist, or is not the caller's to see."""

    code = "not_found"

    def __init__(self, kind: str, name: object, fix: str = "") -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"there is no {kind} {name!r}{'; ' * bool(fix)}{fix}")


class Forbidden(LaasError):
    """The caller may not do this."""

    code = "forbidden"


class Unauthenticated(LaasError):
    """The caller did not prove who it is."""

    code = "unauthenticated"


class Conflict(LaasError):
    """The request does not go with the present state."""

    code = "conflict"


class ConcurrentUpdate(Conflict):
    """Somebody else changed the same thing first; reading again and retrying is safe."""

    code = "concurrent_update"


class LeaseLost(LaasError):
    """Another worker has the fabric now: what was about to be written was not written."""

    code = "lease_lost"


class DoubleClaim(Conflict):
    """A host or link that has an owner (or is down) was about to be claimed."""

    code = "double_claim"


class HostsBusy(Conflict):
    """Servers still run on the hosts that were to change hands."""

    code = "hosts_busy"


class IdempotencyMismatch(LaasError):
    """The idempotency key was used before, for a different request."""

    code = "idempotency_mismatch"


class PreconditionFailed(LaasError):
    """``If-Match`` names another version than the present one."""

    code = "precondition_failed"


class NotSupported(LaasError):
    """A documented request that this release does not carry out."""

    code = "not_supported"


class LimitExceeded(LaasError):
    """A limit of an external system or of the configuration would be exceeded."""

    code = "limit_exceeded"


class Unavailable(LaasError):
    """Something this step needs (database, Nova, subnet manager) did not answer."""

    code = "unavailable"
