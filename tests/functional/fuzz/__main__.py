# SPDX-License-Identifier: Apache-2.0

"""Coverage-guided fuzzing: ``python -m tests.functional.fuzz TARGET [options of libFuzzer]``.

Atheris starts from the valid texts and mutates inputs that reached new lines. Without
``-runs=N`` it runs until it is stopped. An input that causes a crash is written to the
current directory.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped,unused-ignore]

with atheris.instrument_imports(include=["laas_service"]):
    from tests.functional.fuzz.inputs import SEEDS
    from tests.functional.fuzz.targets import TARGETS, taken


def main(argv: list[str]) -> None:
    if len(argv) < 2 or argv[1] not in TARGETS:
        sys.exit(f"name one of {', '.join(TARGETS)}")
    target = argv[1]

    def once(data: bytes) -> None:
        taken(target, data.decode("utf-8", "replace"))

    with tempfile.TemporaryDirectory() as corpus:
        for number, text in enumerate(SEEDS[target]):
            (Path(corpus) / str(number)).write_text(text)
        atheris.Setup([argv[0], corpus, "-max_len=8000", *argv[2:]], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
