# SPDX-License-Identifier: Apache-2.0

"""The map of a fabric: matrices of its cables with owner, state and load, and tenants' trees."""
