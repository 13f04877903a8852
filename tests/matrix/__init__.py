# SPDX-License-Identifier: Apache-2.0

"""Every step of the service crossed with everything that can fail (doc: crash-matrix)."""
