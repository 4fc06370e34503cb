"""Drive a real Chromium by its chromedriver, over the WebDriver protocol (W3C)."""

import base64
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""Key of an element's id in the protocol."""
IS_MISSING = "Cannot read properties of"
"""Prefix of Chromium's errors for `undefined.textContent` and `null.textContent`."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    """One window. Selectors are CSS; waiting ends after *patience* seconds."""

    def __init__(self, client: httpx.Client, session: str, patience: float = 120.0) -> None:
        self._client, self._at, self._patience = client, f"/session/{session}", patience

    def ask(self, method: str, path: str, body: dict | None = None) -> Any:
        """Send a command of the protocol."""
        answer = self._client.request(
            method, self._at + path, json=body if method == "POST" else None
        )
        assert answer.status_code == 200, answer.text[:2_000]
        return answer.json()["value"]

    def open(self, url: str) -> None:
        self.ask("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the result of JavaScript. Retry while an element is being redrawn."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return self.ask("POST", "/execute/sync", {"script": script, "args": [*arguments]})
            except AssertionError as error:
                if IS_MISSING not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(0.02)

    def all(self, selector: str) -> list[str]:
        elements = self.ask("POST", "/elements", {"using": "css selector", "value": selector})
        return [element[ELEMENT] for element in elements]

    def find(self, selector: str) -> str:
        """Wait for a visible element and return the first match."""
        until = time.monotonic() + self._patience
        while True:
            visible = self.run(
                "return [...document.querySelectorAll(arguments[0])].find(e => e.checkVisibility())",
                selector,
            )
            if visible:
                return visible[ELEMENT]
            assert time.monotonic() < until, f"there is no {selector}: {self.text('body')[:2_000]}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        """Wait for an element and return its text, visible or not."""
        until = time.monotonic() + self._patience
        read = "return document.querySelector(arguments[0])?.innerText ?? null"
        while (shown := self.run(read, selector)) is None:
            assert time.monotonic() < until, f"there is no {selector}"
            time.sleep(0.02)
        return shown

    def wait(self, selector: str, text: str) -> str:
        """Wait until an element contains *text* and return all its text."""
        until = time.monotonic() + self._patience
        read = "return document.querySelector(arguments[0])?.innerText ?? ''"
        while text not in (shown := self.run(read, selector)):
            assert time.monotonic() < until, f"{text!r} is not in {shown!r}"
            time.sleep(0.02)
        return shown

    def click(self, selector: str) -> None:
        for _ in range(3):  # a page may draw it again in between
            try:
                self.ask("POST", f"/element/{self.find(selector)}/click", {})
            except AssertionError as error:
                if "stale element" not in str(error):
                    raise
            else:
                return

    def type(self, selector: str, text: str) -> None:
        self.ask("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys at the current focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask(
            "POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]}
        )

    def drag(self, *points: tuple[float, float]) -> None:
        """Press the mouse at the first of *points*, move it to the others, and release it at the
        last."""
        moves = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 50} for x, y in points
        ]
        down, up = ({"type": f"pointer{kind}", "button": 0} for kind in ("Down", "Up"))
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}}
        actions = [moves[0], down, *moves[1:], up]
        self.ask("POST", "/actions", {"actions": [mouse | {"actions": actions}]})

    def accessible_name(self, selector: str) -> str:
        """Return the accessible name that a screen reader uses for an element."""
        return self.ask("GET", f"/element/{self.find(selector)}/computedlabel")

    def console_messages(self) -> list[str]:
        """Return the console messages: script errors, violations of the content security policy."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def resize(self, width: int, height: int = 800) -> None:
        """Set the viewport in pixels. It can be narrower than a window. 0 resets it."""
        wanted = {
            "width": width,
            "height": height * bool(width),
            "deviceScaleFactor": 0,
            "mobile": False,
        }
        self.command("Emulation.setDeviceMetricsOverride", **wanted)

    def command(self, name: str, **parameters: Any) -> Any:
        """Return the result of a command of Chromium's DevTools."""
        return self.ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def save_screenshot(self, path: Path, width: int = 1_280) -> None:
        """Save the whole page as a PNG file."""
        height = self.run("return document.documentElement.scrollHeight")
        self.ask("POST", "/window/rect", {"width": width, "height": max(400, height + 140)})
        path.write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))


class ChromeDriver:
    """Start one browser: `with ChromeDriver() as browser`. Skip the test if none is installed."""

    def __init__(self, *options: str) -> None:
        driver = shutil.which("chromedriver")
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if not driver or not browser:
            pytest.skip("no browser: chromium and chromedriver are not installed")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([driver, f"--port={port}"], **quiet)
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300)
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            *options,
        ]
        self._wanted = {
            "goog:chromeOptions": {"binary": browser, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }

    def __enter__(self) -> Self | Browser:
        for _ in range(2_000):
            try:
                self._client.get("/status")
                break
            except httpx.TransportError:
                time.sleep(0.02)
        answer = self._client.post(
            "/session", json={"capabilities": {"alwaysMatch": self._wanted}}
        ).json()["value"]
        assert "sessionId" in answer, answer
        self._session = answer["sessionId"]
        return Browser(self._client, self._session)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.delete(f"/session/{self._session}")
        self._client.close()
        self._process.terminate()
        self._process.wait(120)
