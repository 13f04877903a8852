# SPDX-License-Identifier: Apache-2.0

"""The Slurm plug-in with the real Slurm and the real service."""
