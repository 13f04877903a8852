# SPDX-License-Identifier: Apache-2.0

"""The composition root: makes adapters and use cases as a configuration says."""

from laas_service.wiring.parts import Parts, set_defaults

__all__ = ["Parts", "set_defaults"]
