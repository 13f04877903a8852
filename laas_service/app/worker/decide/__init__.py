# SPDX-License-Identifier: Apache-2.0

"""Decisions of a worker: pure, from a round and a memory to instructions and the next memory."""
