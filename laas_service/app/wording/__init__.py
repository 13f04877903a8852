# SPDX-License-Identifier: Apache-2.0

"""The sentences of the use cases; pure. Each function gives one sentence, or a part of one.

``reasons`` are told in the history of an allocation, ``waits`` say why a step is not over yet,
``refusals`` are added to the domain's refusals. A kind of drift (``records.Drift``) and a reason
of a refusal (``domain.allocation.Refusal``) carry their words themselves.
"""
