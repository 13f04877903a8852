# SPDX-License-Identifier: Apache-2.0

"""Simulator: replay job traces against the allocation policies and measure the result."""
