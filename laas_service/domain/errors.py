# SPDX-License-Identifier: Apache-2.0

"""The exceptions of this project: callers' mistakes, lost races, and broken invariants.

A refusal is no exception but an answer (``allocation.NoFit``). Each class has a stable
``code`` that the API publishes. One table, in ``laas_service.api.errors``, gives each class
its HTTP status.
"""


class LaasError(Exception):
    """Base class of every error that this project raises on purpose."""

    code = "error"


class InvalidInput(LaasError):
    """A value from outside is wrong; names the field, the value and the fix."""

    code = "invalid_input"

    def __init__(self, field: str, value: object, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        shown = field if field.isprintable() else repr(field)  # a caller may have chosen the name
        wrong = "is missing" if value is None else f"{value!r} is not valid"
        super().__init__(f"{shown}: {wrong}; {fix}")


class _Hidden:
    """Stands for a secret."""

    def __repr__(self) -> str:
        return "its value (not shown)"


HIDDEN = _Hidden()
"""The value of ``InvalidInput`` where it is a secret."""


class InvalidFile(LaasError):
    """A file has a wrong form; names the line (0: the file as a whole) and the reason.

    ``code`` may say more exactly which form is wrong.
    """

    code = "invalid_file"

    def __init__(self, source: str, line: int, why: str, code: str = "") -> None:
        self.source = source
        self.line = line
        self.why = why
        self.code = code or self.code
        super().__init__(f"{source}, line {line}: {why}" if line else f"{source}: {why}")


class QuotaExceeded(LaasError):
    """A project would exceed a quota; names the quota, the value it would have and the fix."""

    code = "quota_exceeded"

    def __init__(self, field: str, value: int, fix: str) -> None:
        self.field = field
        self.value = value
        self.fix = fix
        super().__init__(f"{field}: the project would have {value}; {fix}")


class TooManyRequests(LaasError):
    """The project exceeds its request rate; it may ask again after ``after`` seconds."""

    code = "too_many_requests"

    def __init__(self, after: float) -> None:
        self.after = after
        super().__init__(f"too many requests; ask again after {after:.3g} seconds")


class NotFound(LaasError):
    """The named thing does not exist, or the caller may not see it."""

    code = "not_found"

    def __init__(self, kind: str, name: object, fix: str = "") -> None:
        super().__init__(f"there is no {kind} {name!r}{'; ' * bool(fix)}{fix}")


class Forbidden(LaasError):
    """The caller may not do this."""

    code = "forbidden"


class Unauthenticated(LaasError):
    """The caller did not authenticate."""

    code = "unauthenticated"


class Conflict(LaasError):
    """The request conflicts with the current state."""

    code = "conflict"


class ManagedElsewhere(Conflict):
    """Another fabric has a switch or a port of this one; nothing was recorded."""

    code = "managed_elsewhere"


class NameTaken(Conflict):
    """Another live allocation of the project has the name; ``allocation`` is its id."""

    code = "name_taken"

    def __init__(self, name: str, allocation: str) -> None:
        self.name = name
        self.allocation = allocation
        self.fix = "give another name, or set allow_duplicate_name"
        super().__init__(f"name: {name!r} is the name of allocation {allocation}; {self.fix}")


class ConcurrentUpdate(Conflict):
    """Another writer changed the same object first; reading again and retrying is safe."""

    code = "concurrent_update"


class LeaseLost(Exception):
    """Another worker holds the fabric's lease; the pending write was not made.

    It ends all work on the fabric. Therefore it is no ``LaasError``: code that tolerates errors
    of a step does not catch it.
    """


class DoubleClaim(Conflict):
    """A claim names a host or link that has an owner or is down; nothing was claimed."""

    code = "double_claim"


class HostsBusy(Conflict):
    """Servers still run on hosts that should change their owner."""

    code = "hosts_busy"


class IdempotencyMismatch(LaasError):
    """The idempotency key was used before, for a different request."""

    code = "idempotency_mismatch"


class PreconditionFailed(LaasError):
    """``If-Match`` names another version than the current one."""

    code = "precondition_failed"


class NotSupported(LaasError):
    """This release does not carry out a documented request."""

    code = "not_supported"


class LimitExceeded(LaasError):
    """A limit of an external system or of the configuration would be exceeded."""

    code = "limit_exceeded"


class Unavailable(LaasError):
    """A system that this step needs (database, Nova, subnet manager) did not answer."""

    code = "unavailable"
