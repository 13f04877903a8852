# SPDX-License-Identifier: Apache-2.0

"""Writes the partition keys of a port past OpenSM: ``python -m tests.ibsim_keys LID PORT KEY...``.

PORT is 0 for an adapter. The keys fill the first block of 32 indices; the others become 0.
"""

import ctypes
import sys


class _Port(ctypes.Structure):
    """``ib_portid_t`` of ``libibmad``; only the LID is used."""

    _fields_ = (("lid", ctypes.c_int), ("rest", ctypes.c_ubyte * 252))


def write_keys(lid: int, port: int, keys: list[int]) -> None:
    mad = ctypes.CDLL("libibmad.so.5")
    mad.mad_rpc_open_port.restype = ctypes.c_void_p
    classes = (ctypes.c_int * 1)(1)
    opened = mad.mad_rpc_open_port(None, 0, classes, 1)
    data = (ctypes.c_ubyte * 256)()
    for index, key in enumerate(keys):
        data[2 * index : 2 * index + 2] = list(key.to_bytes(2, "big"))
    mad.mad_rpc_close_port.argtypes = [ctypes.c_void_p]
    mad.smp_set_via.restype = ctypes.c_void_p
    mad.smp_set_via.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 3 + [ctypes.c_void_p]
    where = _Port(lid=lid)
    answer = mad.smp_set_via(data, ctypes.byref(where), 0x16, port << 16, 2000, opened)
    mad.mad_rpc_close_port(opened)
    if not answer:
        raise SystemExit(f"the keys of LID {lid} port {port} were not set")


if __name__ == "__main__":
    write_keys(int(sys.argv[1]), int(sys.argv[2]), [int(key, 16) for key in sys.argv[3:]])
