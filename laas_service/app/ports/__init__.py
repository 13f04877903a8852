# SPDX-License-Identifier: Apache-2.0

"""Protocols of the parts outside the service, one module a subject; adapters implement them.

The protocols about recorded decisions are small, so that a class names those it uses. One
adapter, ``adapters.db.store.SqlStore``, implements all of them. Every method of them that
writes is one transaction, and every method raises ``Unavailable`` when the database does not
answer: the outcome is then unknown, and the call may be repeated.
"""
