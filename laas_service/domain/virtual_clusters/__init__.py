# SPDX-License-Identifier: Apache-2.0

"""Virtual clusters with bandwidth guarantees on a tree: SVC, Kraken and Oktopus."""
