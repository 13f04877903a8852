# SPDX-License-Identifier: Apache-2.0

"""NVIDIA UFM: its REST interface, and the subnet-manager port on it."""
