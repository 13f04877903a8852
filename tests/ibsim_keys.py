# SPDX-License-Identifier: Apache-2.0

"""Writes into a port or switch past OpenSM.

``python -m tests.ibsim_keys LID PORT KEY...``: the partition keys of a port, 0 for an adapter. They
fill the first block of 32 indices, or with PORT:BLOCK another one; the others of it become 0.
``python -m tests.ibsim_keys LID table BLOCK PORTS``: 64 entries of a switch's forwarding table,
from LID 64 times BLOCK on; PORTS has two hexadecimal digits for each.
"""

import ctypes
import sys


class _Port(ctypes.Structure):
    """``ib_portid_t`` of ``libibmad``; only the LID is used."""

    _fields_ = (("lid", ctypes.c_int), ("rest", ctypes.c_ubyte * 252))


PKEY_TABLE, FORWARDING_TABLE = 0x16, 0x19


def write(lid: int, attribute: int, modifier: int, content: bytes) -> None:
    """Set an attribute; raises SystemExit if the device does not take it."""
    mad = ctypes.CDLL("libibmad.so.5")
    mad.mad_rpc_open_port.restype = ctypes.c_void_p
    classes = (ctypes.c_int * 1)(1)
    opened = mad.mad_rpc_open_port(None, 0, classes, 1)
    data = (ctypes.c_ubyte * 256)(*content)
    mad.mad_rpc_close_port.argtypes = [ctypes.c_void_p]
    mad.smp_set_via.restype = ctypes.c_void_p
    mad.smp_set_via.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 3 + [ctypes.c_void_p]
    where = _Port(lid=lid)
    answer = mad.smp_set_via(data, ctypes.byref(where), attribute, modifier, 2000, opened)
    mad.mad_rpc_close_port(opened)
    if not answer:
        raise SystemExit(f"LID {lid} did not take attribute {attribute:#x}, {modifier:#x}")


if __name__ == "__main__":
    device, place, *rest = sys.argv[1:]
    if place == "table":
        write(int(device), FORWARDING_TABLE, int(rest[0]), bytes.fromhex(rest[1]))
    else:
        keys = b"".join(int(key, 16).to_bytes(2, "big") for key in rest)
        port, _, block = place.partition(":")
        write(int(device), PKEY_TABLE, int(port) << 16 | int(block or 0), keys)
