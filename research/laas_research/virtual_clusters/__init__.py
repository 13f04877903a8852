# SPDX-License-Identifier: Apache-2.0

"""Engines for virtual clusters that the service does not use: SVC, Oktopus, mixtures."""
