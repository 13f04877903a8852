# SPDX-License-Identifier: Apache-2.0

"""What Nova's scheduler loads by dotted path: filters in ``laas``; weighers will be ``weighers``.

Imports nova and nothing of the service, which need not be installed beside the scheduler.
"""
