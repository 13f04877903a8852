# SPDX-License-Identifier: Apache-2.0

"""Column types with the same meaning on SQLite, PostgreSQL and MariaDB."""

import json
import zlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, LargeBinary, String
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from laas_service.adapters.forms import Form

_MYSQL = ("mysql", "mariadb")

Serial = BigInteger().with_variant(Integer(), "sqlite")
"""A number that the database assigns; SQLite does so only for INTEGER."""


def exact(length: int) -> TypeEngine[str]:
    """Text up to ``length`` characters that is compared exactly, case included."""
    binary = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(binary, *_MYSQL)


class Moment(TypeDecorator[datetime]):
    """A point in time to the microsecond: aware in Python, plain UTC in the database."""

    impl = DateTime().with_variant(mysql.DATETIME(fsp=6), *_MYSQL)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value and value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value and value.replace(tzinfo=UTC)


class Clock(FunctionElement[datetime]):
    """The time of the database's clock in UTC, not that of the transaction's begin."""

    type = Moment()
    inherit_cache = True


@compiles(Clock, "sqlite")
def _sqlite_clock(element: Clock, compiler: Any, **options: Any) -> str:
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


@compiles(Clock, "postgresql")
def _postgresql_clock(element: Clock, compiler: Any, **options: Any) -> str:
    return "(clock_timestamp() AT TIME ZONE 'UTC')"


@compiles(Clock, *_MYSQL)
def _mysql_clock(element: Clock, compiler: Any, **options: Any) -> str:
    return "utc_timestamp(6)"


class Packed(TypeDecorator[Any]):
    """A large JSON document, deflated: a fabric of 65,536 hosts is 25 MB of text."""

    impl = LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes:
        return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), level=1)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(zlib.decompress(value))


class Stored(TypeDecorator[Any]):
    """Values of a form, as their documents; NULL is None."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, form: Form[Any], packed: bool = False) -> None:
        super().__init__()
        self.form, self.packed = form, packed

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Packed() if self.packed else JSON(none_as_null=True))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.form.write(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.form.read(value)
