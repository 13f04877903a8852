# SPDX-License-Identifier: Apache-2.0

"""Use cases that only tenants on shared hosts need: class ``shared``, and the hosts it is for."""
