# SPDX-License-Identifier: Apache-2.0

"""Plug-ins for Nova's scheduler, loaded by dotted path: filters in ``laas``.

The package imports nova and no module of the service, so that a scheduler's machine needs no
installation of the service.
"""
