# SPDX-License-Identifier: Apache-2.0

"""StarCube: allocation of stars of hosts in a fat-tree, with moves of running tenants.

Source: Tsai and Liao, StarCube (Springer 2016), chapters 3 and 4.
"""
