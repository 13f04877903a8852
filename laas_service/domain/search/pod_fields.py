# SPDX-License-Identifier: Apache-2.0

"""Integers with one field of bits for each pod, so that one operation serves all pods."""

from collections.abc import Iterable
from functools import lru_cache


class PodFields:
    """Arithmetic on integers with a field of ``width`` bits for each pod, pod 0 the lowest.

    A field holds a set of at most ``most`` members, their number, or 1 for a pod that is meant.
    """

    def __init__(self, pods: int, most: int) -> None:
        self._bias = most.bit_length()
        self.width = 1 << self._bias.bit_length()  # a power of two, with room for the bias
        while self.width < most:
            self.width *= 2
        self.ones = sum(1 << pod * self.width for pod in range(pods))
        """1 in every field."""
        self._steps = []
        shift = 1
        while shift < self.width:
            half = sum(((1 << shift) - 1) << at for at in range(0, self.width, 2 * shift))
            self._steps.append((shift, half * self.ones))
            shift *= 2

    def joined(self, by_pod: Iterable[int]) -> int:
        """One integer of the values of all pods."""
        joined = at = 0
        for value in by_pod:
            joined |= value << at
            at += self.width
        return joined

    def counts(self, sets: int) -> int:
        """The number of bits of each field."""
        for shift, half in self._steps:
            sets = (sets & half) + (sets >> shift & half)
        return sets

    def at_least(self, counts: int, least: int) -> int:
        """1 in each field whose number is ``least`` or more; ``least`` is not negative."""
        bias = self._bias
        if least >> bias:
            return 0
        return counts + ((1 << bias) - least) * self.ones >> bias & self.ones


@lru_cache(maxsize=16)
def pod_fields(pods: int, most: int) -> PodFields:
    """The fields of so many pods; made once for each fabric's sizes."""
    return PodFields(pods, most)
