# SPDX-License-Identifier: Apache-2.0

"""Protocols of the parts outside the service, one module a subject; adapters implement them.

What is recorded is the ``store``; its parts have the names of their modules here and in
``adapters.db``. Every method of a part that writes is one transaction, and every method raises
``Unavailable`` when the database does not answer: the outcome is then unknown, and the call may
be repeated.
"""
