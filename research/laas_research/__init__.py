# SPDX-License-Identifier: Apache-2.0

"""Reproduction of published evaluations, and engines that the service does not use."""
