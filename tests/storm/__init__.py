# SPDX-License-Identifier: Apache-2.0

"""Storm: several API processes, workers and clients run while processes and connections break.

``python -m tests.storm`` (``tox -e storm``). Clients use HTTP. The judge reads the tables of
the database, the directory of the compute adapter and the published routes by itself, and
compares them with the answers that the clients received. A checker (``linear``) judges the history
of requests and answers.
"""
