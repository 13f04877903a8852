# SPDX-License-Identifier: Apache-2.0

"""Real servers that tests start for themselves: private, on loopback, gone with the test."""
