# SPDX-License-Identifier: Apache-2.0

"""The URL of the database: its mistakes are explained, and no part of it is printed.

A mistake moves parts of a password to other places: ``laas:a@b@host`` names the host ``b@host``.
So errors show no part of the text, and ``Redaction`` hides passwords and options in errors and logs
of libraries.
"""

import logging
import re

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from laas_service.domain.errors import HIDDEN, InvalidInput

OPTION = "[database] connection"

_FORM = "write it as driver://user:password@host/database, with postgresql+psycopg or mysql+pymysql"
_ESCAPES = (
    "in the user and the password write % as %25, @ as %40, : as %3A, / as %2F, and $ as $$, "
    "which the configuration file reads as $"
)
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NAME = re.compile(r"[\w.:%-]*")

SHORT = 4
"""Characters of a text that ``Redaction`` looks for, at least."""


def wrong(fix: str) -> InvalidInput:
    """The error that the option is wrong, with what to do."""
    return InvalidInput(OPTION, HIDDEN, fix)


def parsed(text: str) -> URL:
    """The URL, for MariaDB and MySQL with the character set that holds every name.

    Raises: InvalidInput, which shows no part of the text.
    """
    try:
        url = make_url(text)
        kind = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise wrong(f"{_FORM}; {_ESCAPES}") from None
    if kind == "sqlite":
        return url
    if text.count("@") > 1:
        raise wrong(f"it has more than one @; {_ESCAPES}")
    if _STRAY.search(text.partition("?")[0]):
        raise wrong(f"a % is not followed by two hexadecimal digits; {_ESCAPES}")
    if not _NAME.fullmatch(url.host or "") or not _NAME.fullmatch(url.database or ""):
        raise wrong(f"the host or the name of the database has other characters; {_ESCAPES}")
    if kind in ("mysql", "mariadb"):
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url


class Redaction(logging.Filter):
    """Makes a library's log record one line, without the password and the options of a URL."""

    def __init__(self, url: URL) -> None:
        super().__init__()
        self._secrets = _secrets(url)

    def without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text = f"{text}: {' '.join(str(error).split()) or type(error).__name__}"
            record.exc_info, record.exc_text = None, None
        record.msg, record.args = self.without_secrets(text), ()
        return True


def _secrets(url: URL) -> list[str]:
    """The parts that no message may show, longest first; short ones are parts of other words."""
    values = [value for value in url.query.values() if isinstance(value, str)]
    words = {str(url.password or ""), *values} - {"utf8mb4"}
    return sorted((word for word in words if len(word) >= SHORT), key=len, reverse=True)
