# SPDX-License-Identifier: Apache-2.0

"""The composition roots: the parts of a service (``parts``), and an agent (``agent``)."""
