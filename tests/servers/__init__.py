# SPDX-License-Identifier: Apache-2.0

"""Private servers that tests start on loopback; each ends with its test."""
