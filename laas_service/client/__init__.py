# SPDX-License-Identifier: Apache-2.0

"""The clients' side: REST, and what commands do with it. Knows nothing of the service's inside."""
