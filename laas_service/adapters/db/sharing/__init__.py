# SPDX-License-Identifier: Apache-2.0

"""Rows that only shared hosts have."""
