"""Opens pages in headless Chromium without a network, and checks errors, requests and the layout of plots."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
_START_S, _ANSWER_S, _LARGEST = 60.0, 60.0, 1 << 28
# No host name resolves, and requests to an IP address go to a proxy port that nobody listens on.
_OFFLINE = ("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9")
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--remote-debugging-port=0",
)  # fmt: skip

LEAST_TEXT = 9
"""Least size of a plot's text in pixels."""
LOOK = """
(() => {
  const whole = document.documentElement;
  const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const plots = [...document.querySelectorAll('svg')].map(svg => {
    const own = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')];
    const boxes = texts.map(t => t.getBoundingClientRect());
    const marks = [...svg.querySelectorAll('rect, circle, polyline, path')];
    const outside = box => box.left < own.left - 1.5 || box.right > own.right + 1.5
      || box.top < own.top - 1.5 || box.bottom > own.bottom + 1.5;
    const said = t => [...t.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('');
    const overlaps = [];
    for (let i = 0; i < boxes.length; i++)
      for (let j = i + 1; j < boxes.length; j++)
        if (meets(boxes[i], boxes[j])) overlaps.push(said(texts[i]) + ' | ' + said(texts[j]));
    return {
      title: svg.querySelector(':scope > title')?.textContent || '',
      description: svg.querySelector(':scope > desc')?.textContent || '',
      width: own.width, height: own.height, marks: marks.length,
      least_text: Math.min(99, ...texts.map(t =>
        parseFloat(getComputedStyle(t).fontSize) * own.width / svg.viewBox.baseVal.width)),
      marks_outside: marks.filter(m => outside(m.getBoundingClientRect())).length,
      texts_outside: texts.filter((t, i) => outside(boxes[i])).map(said),
      overlaps,
      invalid: [...svg.querySelectorAll('*')].filter(e =>
        [...e.attributes].some(a => /NaN|Infinity|undefined|None/.test(a.value))).length,
    };
  });
  const contrast = (() => {
    const parsed = c => c.match(/[0-9.]+/g).slice(0, 3).map(v => {
      v = v / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    const light = c => { const [r, g, b] = parsed(c); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const over = c => { const l = light(c);
      return (Math.max(l, paper) + 0.05) / (Math.min(l, paper) + 0.05); };
    const texts = [...document.querySelectorAll('p:not(.notice), td, th, h1, h2, a')];
    return Math.min(...texts.map(e => over(getComputedStyle(e).color)),
      ...[...document.querySelectorAll('svg text:not(.cell)')].map(e => over(getComputedStyle(e).fill)));
  })();
  return {
    title: document.title, plots, contrast,
    tables: document.querySelectorAll('table').length,
    wide_tables: [...document.querySelectorAll('.wide:has(> table)')]
      .filter(box => box.scrollWidth > box.clientWidth + 1)
      .map(box => [...box.querySelectorAll('th')].map(th => th.textContent).join(', ')),
    seen_columns: [...document.querySelectorAll('table')].map(table =>
      [...table.querySelectorAll('thead th')].filter(th => th.getBoundingClientRect().width)
        .map(th => th.textContent)),
    narrow: innerWidth <= 400 && !matchMedia('print').matches,
    scrolled: [...document.querySelectorAll('main *:not(svg *)')]
      .filter(box => box.clientWidth && box.scrollWidth > box.clientWidth + 1
        && getComputedStyle(box).display !== 'inline')
      .map(box => `${box.tagName} ${box.className} ${box.textContent.slice(0, 60)}`),
    sideways: whole.scrollWidth - whole.clientWidth,
    downloads: [...document.querySelectorAll('a[download]')].map(a => ({name: a.download, href: a.href})),
  };
})()
"""


def chromium() -> str | None:
    """Returns the path of the browser; None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass(frozen=True)
class Seen:
    """Result of opening a page.

    Attributes:
        errors: Errors that the browser reported, and errors and warnings of its console.
        requests: Requested URLs other than the page itself and `data:` links.
        look: Result of the script `LOOK`.
    """

    errors: list[str]
    requests: list[str]
    look: dict[str, Any]

    def faults(self) -> list[str]:
        """Lists everything that is wrong with the page; empty for a good page."""
        found = [*self.errors, *(f"asks for {url}" for url in self.requests)]
        if self.look["sideways"] > 0:
            found.append(f"the page is {self.look['sideways']} pixels too wide")
        if self.look["narrow"]:
            found += [f"wider than the screen: {reported}" for reported in self.look["scrolled"]]
        if self.look["contrast"] < 4.5:
            found.append(f"text has a contrast of {self.look['contrast']:.2f} only")
        for plot in self.look["plots"]:
            name = plot["title"] or "a plot"
            if not plot["title"] or not plot["description"]:
                found.append(f"{name} has no title or no description")
            if plot["least_text"] < LEAST_TEXT:
                found.append(f"{name} has text of {plot['least_text']:.1f} pixels")
            if plot["width"] < 100 or plot["height"] < 40:
                found.append(f"{name} is drawn {plot['width']:.0f} x {plot['height']:.0f}")
            if not plot["marks"]:
                found.append(f"{name} is empty")
            if plot["marks_outside"] or plot["invalid"]:
                found.append(
                    f"{name}: {plot['marks_outside']} marks outside, {plot['invalid']} numbers that are none"
                )
            found += [f"{name}: text outside: {text}" for text in plot["texts_outside"]]
            found += [f"{name}: texts overlap: {pair}" for pair in plot["overlaps"]]
        return found


class Browser:
    """A running Chromium.

    Args:
        address: URL of its WebSocket.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def open(
        self,
        page: Path,
        *,
        dark: bool = False,
        width: int = 1000,
        printed: bool = False,
        picture: Path | None = None,
    ) -> Seen:
        """Opens a file in a new tab and inspects it.

        Args:
            page: An HTML file.
            dark: Whether the user prefers dark pages.
            width: Width of the window in pixels.
            printed: Whether the page is rendered as for print.
            picture: File for a screenshot of the whole page.

        Raises:
            RuntimeError: The browser reported an error, ended, or could not inspect the page.
        """
        media = {
            "media": "print" if printed else "screen",
            "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        }
        return asyncio.run(self._open(page.resolve().as_uri(), media, width, picture))

    async def _open(
        self, url: str, media: dict[str, Any], width: int, picture: Path | None
    ) -> Seen:
        connection = await websocket_connect(self._address, max_message_size=_LARGEST)
        session = _Session(connection)
        try:
            target = await session.call("Target.createTarget", {"url": "about:blank"})
            attached = await session.call(
                "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
            )
            session.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                await session.call(f"{domain}.enable")
            await session.call("Emulation.setEmulatedMedia", media)
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            await session.call("Emulation.setDeviceMetricsOverride", size)
            await session.call("Page.navigate", {"url": url})
            await session.until("Page.loadEventFired")
            reported = await session.call(
                "Runtime.evaluate", {"expression": LOOK, "returnByValue": True}
            )
            if "exceptionDetails" in reported:
                raise RuntimeError(f"the page cannot be looked at: {reported['exceptionDetails']}")
            if picture is not None:
                shot = await session.call("Page.captureScreenshot", {"captureBeyondViewport": True})
                picture.write_bytes(base64.b64decode(shot["data"]))
            await session.call("Target.closeTarget", {"targetId": target["targetId"]})
            return Seen(
                session.errors,
                [r for r in session.requests if r != url],
                reported["result"]["value"],
            )
        finally:
            connection.close()
            while await asyncio.wait_for(connection.read_message(), _ANSWER_S) is not None:
                pass


class _Session:
    """Commands and events of the DevTools protocol."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._events: set[str] = set()
        self.session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params or {}}
        if self.session is not None:
            message["sessionId"] = self.session
        await self._connection.write_message(json.dumps(message))
        while (reported := await self._next()).get("id") != number:
            pass
        if "error" in reported:
            raise RuntimeError(f"{method}: {reported['error']['message']}")
        return dict(reported["result"])

    async def until(self, method: str) -> None:
        while method not in self._events:
            await self._next()

    async def _next(self) -> dict[str, Any]:
        text = await asyncio.wait_for(self._connection.read_message(), _ANSWER_S)
        if text is None:
            raise RuntimeError("the browser has ended")
        reported: dict[str, Any] = json.loads(text)
        self._take(reported.get("method", ""), reported.get("params", {}))
        return reported

    def _take(self, method: str, params: dict[str, Any]) -> None:
        self._events.add(method)
        if method == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            words = (str(arg.get("value", arg.get("description"))) for arg in params["args"])
            self.errors.append(f"console: {' '.join(words)}")
        elif method == "Runtime.exceptionThrown":
            self.errors.append(f"exception: {params['exceptionDetails']['text']}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"log: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith("data:"):
                self.requests.append(url)


@contextmanager
def offline_browser() -> Iterator[Browser]:
    """Yields headless Chromium without a network, with a temporary profile.

    Raises:
        RuntimeError: Chromium is not installed or does not start.
    """
    program = chromium()
    if program is None:
        raise RuntimeError(f"none of {', '.join(NAMES)} is installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        log = Path(profile, "log")
        with log.open("wb") as said:
            process = subprocess.Popen(
                [program, *_OPTIONS, *_OFFLINE, f"--user-data-dir={profile}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        try:
            yield Browser(_address(process, log))
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Returns the WebSocket URL that the browser logs when it has started."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r"DevTools listening on (ws://\S+)", log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.05)
    said = log.read_text(errors="replace").strip().splitlines()
    raise RuntimeError(f"Chromium does not start: {said[-1] if said else 'it said nothing'}")
