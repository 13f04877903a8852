# SPDX-License-Identifier: Apache-2.0

"""Parts of an answer that are read apart, so that one that cannot be read does not break others.

Maps and metrics show many tenants. What one of them stored, perhaps under the bounds of an earlier
release, must not keep the others' from being shown.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from laas_service.domain.errors import Unavailable
from laas_service.domain.wording import printable

LOG = logging.getLogger(__name__)

Part = TypeVar("Part")


def part(name: str, read: Callable[[], Part], instead: Any) -> Part:
    """What ``read`` returns; ``instead``, of its type, with one line in the log, if it raises.

    ``read`` must do all the work: an iterator that it returned would be read outside.

    Raises:
        Unavailable: the whole answer cannot be given.
    """
    try:
        return read()
    except Unavailable:
        raise
    except Exception as error:
        why = printable(f"{type(error).__name__}: {error}")
        LOG.error("%s cannot be read and is left out: %s", name, why)
        return cast("Part", instead)
