"""A browser to test with: headless Chromium, told what to do over the pipe that it offers for that.

Only Python's standard library: `--remote-debugging-pipe` has the DevTools protocol on two file descriptors, messages of
JSON with a zero byte behind each, so no socket and no package is needed. Waiting is always for something to be so,
with a deadline that only a failure reaches.
"""

import base64
import json
import os
import select
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]
PATIENCE = 30.0


class Failed(Exception):
    """The page is not as it should be, or says that it has failed."""


class Browser:
    def __init__(self, program):
        to_browser, self._send = os.pipe()
        self._receive, from_browser = os.pipe()
        self._profile = tempfile.TemporaryDirectory(prefix="plinth-console-", ignore_cleanup_errors=True)
        flags = [
            "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--hide-scrollbars", "--force-color-profile=srgb", f"--user-data-dir={self._profile.name}", "about:blank",
        ]

        def connect():
            # The browser reads commands from descriptor 3 and answers on 4.
            os.dup2(to_browser, 13)
            os.dup2(from_browser, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self._process = subprocess.Popen(
            [program, *flags], preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.page(f"{domain}.enable")

    def close(self):
        self._process.terminate()
        self._process.wait()
        os.close(self._send)
        os.close(self._receive)
        self._profile.cleanup()

    def page(self, method, **parameters):
        """Tells the page something."""
        return self.call(method, session=self._session, **parameters)

    def call(self, method, session=None, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self._send, rest):]
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _next(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(deadline - time.monotonic(), 0))
            more = os.read(self._receive, 1 << 16) if ready else b""
            if not more:
                raise Failed("the browser does not answer")
            self._buffer += more
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        """Keeps what the page complains of: exceptions, errors of the console, what its policy has blocked."""
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.complaints.append(" ".join(str(part.get("value")) for part in parameters["args"]))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            entry = parameters["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    def run(self, expression):
        """The value of an expression of JavaScript."""
        answer = self.page("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failed(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, expression, what=None, patience=PATIENCE):
        """Waits until an expression is true, and gives its value."""
        deadline = time.monotonic() + patience
        while True:
            try:
                value = self.run(expression)
            except Failed as failure:
                # The page has gone to another in between; what is waited for is there.
                if "navigated" not in str(failure):
                    raise
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise Failed(f"{what or expression}: still {value!r}; the page says: {self.run('document.body.innerText')[:600]}")
            time.sleep(0.05)

    def open(self, address):
        self.page("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def click(self, selector, meanwhile=lambda: None):
        """Clicks what the selector finds, with the mouse, where a person would; may do something between press and release."""
        box = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                       " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"]:
            if kind == "mouseReleased":
                meanwhile()
            self.page("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def point(self, selector, share):
        """Moves the mouse over what the selector finds, this far to the right."""
        x, y = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                        f" const r = e.getBoundingClientRect(); return [r.x + r.width * {share}, r.y + r.height / 2]; }})()")
        self.page("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, selector, text):
        """Puts text in place of what a field has."""
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.select(); }})()")
        self.page("Input.insertText", text=text) if text else self.press("Delete", 46)

    def press(self, key, code):
        for kind in ["keyDown", "keyUp"]:
            self.page("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      text="\r" if key == "Enter" and kind == "keyDown" else "")

    def size(self, width, height, is_phone=False):
        self.page("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1,
                  mobile=is_phone)

    def colours(self, scheme):
        """What the system prefers: light or dark."""
        self.page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path, whole=True):
        data = self.page("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
