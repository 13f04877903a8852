# SPDX-License-Identifier: Apache-2.0

"""Faults of a simulated fabric under the real OpenSM and the real worker, measured and judged."""
