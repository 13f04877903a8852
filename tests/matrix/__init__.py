# SPDX-License-Identifier: Apache-2.0

"""Crash matrix: every step of the service crossed with every fault (page ``crash-matrix``)."""
