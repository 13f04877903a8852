# SPDX-License-Identifier: Apache-2.0

"""Slots of shared hosts: placement, load and promises of links, migration and consolidation."""
