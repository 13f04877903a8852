# SPDX-License-Identifier: Apache-2.0

"""The initiator that log lines name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from laas_service.messages import Initiator

ActingFor = Callable[[Initiator | None], AbstractContextManager[None]]
"""A context in which every log line names this initiator; None names nobody."""
