# SPDX-License-Identifier: Apache-2.0

"""Several processes, several clients, everything at once, and things that break: who owns what?

``python -m tests.storm`` (``tox -e storm``). What is asked and answered goes over HTTP; the
judge reads the tables of the database, the directory of the compute adapter and the
published routes by itself, and holds them against what the clients were told.
"""
