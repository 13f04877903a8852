# SPDX-License-Identifier: Apache-2.0

"""REST resources that only shared hosts have."""
