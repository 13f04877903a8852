# SPDX-License-Identifier: Apache-2.0

"""The pictures of the tutorial: the pages that its own commands write."""

from __future__ import annotations

import re

from tests.browser.chromium import Chromium
from tests.browser.test_pages import SCREENSHOTS
from tests.functional.test_docs import ROOT, examples, run
from tests.functional.test_docs import site as site

TUTORIAL = "user/tutorial.rst"


def test_the_tutorial_shows_the_pages_that_its_commands_write(site, tmp_path):
    """Every picture is of a page, every page has its picture, and shows what the text says."""
    config, environment = site
    shown = {}
    with Chromium() as browser:
        for text, expected in examples(TUTORIAL):
            run(text, expected, config, environment, tmp_path)
            written = re.search(r"--html (\S+)\.html", text)
            if written:
                browser.open((tmp_path / f"{written[1]}.html").as_uri())
                shown[written[1]] = browser.run("document.body.innerText")
                browser.screenshot(SCREENSHOTS / f"tutorial-{written[1]}.png")
        assert browser.problems() == []
    pictures = (ROOT / "doc" / "source" / TUTORIAL).read_text()
    assert re.findall(r"image:: images/tutorial-(\S+)\.png", pictures) == list(shown)
    assert "blue" in shown["fabric"]
    assert "red" in shown["fabric"]
    assert "Hosts of all allocations over time" in shown["fabric"]
    assert "hosts are refused" in shown["refused"]
    assert "operator" in shown["failed"]
