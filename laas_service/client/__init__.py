# SPDX-License-Identifier: Apache-2.0

"""REST client library and the commands of ``laas`` and ``openstack``; imports no server code."""
