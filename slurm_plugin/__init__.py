# SPDX-License-Identifier: Apache-2.0

"""laas-slurm: every job of a Slurm partition owns its links.

A daemon offers pending jobs to the service and lets each start on the hosts of its allocation.
All state is in Slurm and in the service. Knows the service by its REST client alone.
"""
