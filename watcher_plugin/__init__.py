# SPDX-License-Identifier: Apache-2.0

"""Plug-ins for OpenStack Watcher, loaded by entry points: room for a request by moving tenants.

Watcher audits and asks for approval; the service plans and moves. The package imports watcher and
the REST client of the service.
"""
