"""A headless browser over its DevTools pipe: enough to load a page, ask it questions, press keys and print it. Needs no package."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 600.0  # seconds for an answer: a safety net that a busy machine does not reach


def found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """`with Browser(path) as browser: browser.open(page)`. What the page says on its console, or throws, is in `complaints`."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="pairgrad-browser-")
        theirs_in, self._to = (_high(end) for end in os.pipe())
        self._from, theirs_out = (_high(end) for end in os.pipe())
        flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe --no-first-run --mute-audio --hide-scrollbars"
        silent = os.open(os.devnull, os.O_RDWR)
        self._pid = os.posix_spawn(
            program,
            [program, *flags.split(), f"--user-data-dir={self._profile}"],
            os.environ,
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, silent, k) for k in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, theirs_in, 3),  # the numbers that the pipe is known by
                (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            ],
            setsid=True,
        )
        for end in (silent, theirs_in, theirs_out):
            os.close(end)
        self._pending, self._count, self._session = b"", 0, None
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    # Messages ---------------------------------------------------------------------------------------------------------

    def call(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        """The next message; complaints and requests are noted on the way."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._from, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError(f"the browser must answer within {PATIENCE:g} s")
            self._pending += data
        raw, self._pending = self._pending.split(b"\0", 1)
        message = json.loads(raw)
        name, said = message.get("method"), message.get("params", {})
        if name == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif name == "Runtime.consoleAPICalled" or name == "Log.entryAdded":
            self.complaints.append(json.dumps(said.get("entry", said)))
        elif name == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        return message

    # Pages ------------------------------------------------------------------------------------------------------------

    def open(
        self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = "screen", scale: float = 1
    ) -> None:
        self.complaints, self.requests = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self.ask("document.readyState") != "complete" or self.ask("location.href") == "about:blank":
            time.sleep(0.02)

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of what is drawn."""
        box = "(e => { e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })"
        x, y = self.ask(f"{box}(document.querySelector({json.dumps(selector)}))")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "char", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                text="\r" if key == "Enter" and kind == "char" else "",
            )

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])


def _high(end: int) -> int:
    """The same end of a pipe under a number that is in nobody's way."""
    moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(end)
    return moved
