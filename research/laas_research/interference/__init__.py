# SPDX-License-Identifier: Apache-2.0

"""How much tenants slow each other down: max-min fair rates over the tables of a fabric.

``traffic`` has what applications send, ``routes`` the links that it takes, ``rates`` the share
of each flow, ``engine`` plays tenants at the same time, ``study`` places them and compares.
"""
