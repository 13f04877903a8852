# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

import pytest

THREADS = """\
import ctypes, threading
from laas_service.cmd import process
{share}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
every = threading.Barrier(8)
def take():
    every.wait()
    for _ in range(1000):
        libc.malloc(1000)
    every.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.parametrize(("share", "few"), [("process.limit_heaps()", True), ("", False)])
def test_threads_share_their_heaps(share, few):
    code = THREADS.format(share=share)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout.count("<heap nr=") <= 2) is few
