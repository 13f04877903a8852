# SPDX-License-Identifier: Apache-2.0

"""Changes of placement: resize in place, and moves of tenants that make room for a request."""
