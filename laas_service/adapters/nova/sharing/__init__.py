# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts in Nova and placement; only ``NovaCompute`` imports it.

``slots`` tells who holds them and sets how many there are, by the calls of ``placement_slots``.
``take_back`` and ``settling`` are the changes; ``slot_moves`` finds the server that moves next.
"""
