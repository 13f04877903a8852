# SPDX-License-Identifier: Apache-2.0

"""Debian's Chromium, driven over its debugging pipe (the DevTools protocol); no driver needed.

Waits are for events and conditions in the page, never for times; ``PATIENCE`` only ends a test
that hangs.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium")
PATIENCE = 300.0
"""Seconds after which an answer is given up."""

_READY = """new Promise((done) => {
  const root = document.documentElement;
  const look = () => root && root.dataset.ready && document.readyState === "complete" && done(true);
  new MutationObserver(look).observe(document, { attributes: true, subtree: true });
  document.addEventListener("readystatechange", look);
  look();
})"""


class Chromium:
    """One headless browser with one page; use it as a context manager."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        assert PROGRAM is not None, "install chromium (bindep.txt)"
        self._profile = tempfile.mkdtemp(prefix="laas-chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def descriptors() -> None:
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [
                PROGRAM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--force-color-profile=srgb",
                "--hide-scrollbars",
                "--no-first-run",
                f"--user-data-dir={self._profile}",
                f"--window-size={width},{height}",
                "--remote-debugging-pipe",
                "about:blank",
            ],
            close_fds=False,
            preexec_fn=descriptors,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._left = b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.size(width, height)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    # -- protocol -----------------------------------------------------------------

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that arrive meanwhile are kept in ``events``."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def until(self, method: str) -> dict[str, Any]:
        """The next event of this name that has not been taken yet."""
        while True:
            for place, event in enumerate(self.events):
                if event.get("method") == method:
                    parameters: dict[str, Any] = self.events.pop(place)["params"]
                    return parameters
            self.events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], deadline - time.monotonic())
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._left += piece
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    # -- the page -----------------------------------------------------------------

    def open(self, url: str) -> None:
        """Go to an address and wait until the page has its map, or says why it has none."""
        self.send("Page.navigate", url=url)
        self.until("Page.loadEventFired")
        self.run(_READY)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def size(self, width: int, height: int, mobile: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def dark(self, dark: bool) -> None:
        value = "dark" if dark else "light"
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": value}],
        )

    def click(self, selector: str) -> None:
        """A real click in the middle of the first element that matches."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.click_at(x, y)

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def type(self, selector: str, text: str) -> None:
        """Replace what is in a field, and press Enter."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.focus(); e.value = ''; })()"
        )
        self.send("Input.insertText", text=text)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self.send("Input.dispatchKeyEvent", type="keyDown", text="\r", **enter)
        self.send("Input.dispatchKeyEvent", type="keyUp", **enter)

    def screenshot(self, path: Path) -> None:
        shot = self.send("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def problems(self) -> list[str]:
        """What went wrong in the page so far: exceptions, logged errors, requests."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            if event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(str(parameters["entry"]))
        return found

    def requests(self) -> list[str]:
        """The addresses that the page has asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    # -- times --------------------------------------------------------------------

    def trace(self) -> None:
        """Begin to record what the threads of the browser do."""
        self.send(
            "Tracing.start",
            transferMode="ReportEvents",
            traceConfig={
                "includedCategories": ["devtools.timeline", "toplevel", "blink.user_timing"]
            },
        )

    def traced(self) -> list[dict[str, Any]]:
        """End the recording; its events."""
        self.send("Tracing.end")
        self.until("Tracing.tracingComplete")
        events: list[dict[str, Any]] = []
        for event in self.events:
            if event.get("method") == "Tracing.dataCollected":
                events += event["params"]["value"]
        self.events = [e for e in self.events if e.get("method") != "Tracing.dataCollected"]
        return events


def main_thread(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tasks of the page's main thread, in order, with ``tdur``: processor time in us.

    The page's thread is the one that fires most animation frames or evaluates its script.
    """
    counts: dict[tuple[int, int], int] = {}
    for event in events:
        if event["name"] in ("FireAnimationFrame", "EvaluateScript", "ParseHTML"):
            thread = (event["pid"], event["tid"])
            counts[thread] = counts.get(thread, 0) + 1
    (page, *_) = sorted(counts, key=lambda thread: -counts[thread])
    mine = [event for event in events if (event["pid"], event["tid"]) == page]
    return sorted(mine, key=lambda event: event["ts"])


def tasks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The outermost tasks among the events of one thread."""
    return [
        event
        for event in events
        if event.get("ph") == "X" and event["name"] in ("RunTask", "ThreadControllerImpl::RunTask")
    ]
