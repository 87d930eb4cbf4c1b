"""Chromium: a real browser without a window, at any width, in the dark, or without JavaScript.

Run by tests alone, one browser for each process of the suite. It never looks for a driver on the network.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from selenium.common import WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from tests.helpers.support import PATIENCE_S, wait_for

WIDE, NARROW = 1440, 360
T = TypeVar("T")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
# As root there is no sandbox; /dev/shm is small in containers. The rest would call home, or slow a page down.
_OPTIONS: tuple[str, ...] = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
)
_OPTIONS += (
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# One process draws the pages of all tests. One for each test, and one in reserve, use a fifth of the CPU.
_OPTIONS += (
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    "--disable-features=SpareRendererForSitePerProcess",
    "--in-process-gpu",
    "--disable-software-rasterizer",
)

# In one step, for a live part is replaced, and a page loads anew, at any moment.
_ROW = """
const rows = [...document.querySelectorAll("main tbody tr")];
const copies = (row, text) => row.querySelector(`[data-copy="${CSS.escape(text)}"]`);
const says = (row, text) => row.innerText.includes(text) || copies(row, text);
const row = rows.find(row => says(row, arguments[0]));
"""
_TICK = """
if (row) row.querySelector("input[type=checkbox]").click();
return Boolean(row);
"""
_CLICK = """
const within = arguments[0] ? row : document.querySelector("main");
const seen = el => el.checkVisibility({visibilityProperty: true});
const named = [...within.querySelectorAll("button, a, input")].filter(el => el.textContent === arguments[1]);
const found = named.find(seen) || named.find(el => el.closest("details.menu:not([open])"));
if (!found) return false;
// As a person does, who opens the menu that has it.
if (!seen(found)) found.closest("details.menu").open = true;
if (!seen(found)) return false;
found.scrollIntoView({block: "center"});
const {left, top, width, height} = found.getClientRects()[0];
if (!found.contains(document.elementFromPoint(left + width / 2, top + height / 2))) return false;
window.isBefore = true;
found.click();
return true;
"""

_WIDER = """
const right = element => element.getBoundingClientRect().right;
const edge = document.documentElement.clientWidth;
const wide = [...document.querySelectorAll("body *")].filter(el => right(el) > edge + 0.5);
return wide.slice(-3).map(el => el.outerHTML.slice(0, 200));
"""


def lacking() -> str:
    """What must be installed for these tests, as a sentence; empty if all is there."""
    if not any(map(shutil.which, _NAMES)) or not shutil.which("chromedriver"):
        return "Chromium is not installed: apt-get install chromium chromium-driver"
    return "" if _AXE.exists() else "axe-core is not installed: install npm, then make .venv/axe"


class Chromium:
    """One browser with one window."""

    def __init__(self, folder: Path) -> None:
        """``folder`` holds its profile. Start it with ``lacking`` empty."""
        os.environ["SE_OFFLINE"] = "true"
        options = ChromeOptions()
        options.binary_location = next(filter(None, map(shutil.which, _NAMES)))
        for option in (*_OPTIONS, f"--user-data-dir={folder}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = str(shutil.which("chromedriver"))
        self._driver = Chrome(options=options, service=Service(driver, log_output=os.devnull))
        self._size = (0, 0)
        self._driver.set_page_load_timeout(PATIENCE_S)
        self._driver.set_script_timeout(PATIENCE_S)

    def close(self) -> None:
        """End the browser and its driver."""
        self._driver.quit()

    def reset(self) -> None:
        """Forget cookies, messages and what was emulated."""
        self._command("Network.clearBrowserCookies")
        self._command("Emulation.setScriptExecutionDisabled", value=False)
        self._command("Emulation.setTimezoneOverride", timezoneId="")
        self.resize(WIDE)
        self.prefer("light")
        self.messages()

    def open(self, url: str) -> None:
        """Load a page."""
        self._driver.get(url)

    def wait_for_search(self) -> None:
        """Wait for the last page of a search, which goes on by itself."""
        # A page that has its body has its head.
        complete = "html:not(:has(meta[http-equiv=refresh])) > body"
        self._once(lambda: self.all(complete), "the end of the search")

    @property
    def url(self) -> str:
        """The address of the page."""
        return self._driver.current_url

    @property
    def title(self) -> str:
        """The title of the page."""
        return self._driver.title

    @property
    def text(self) -> str:
        """The text that the page shows."""
        return self.text_of("body")

    def text_of(self, selector: str) -> str:
        """The text of the first element of a CSS selector, once it is there."""
        return self._once(lambda: self.texts(selector), f"the text of {selector}")[0]

    def texts(self, selector: str) -> list[str]:
        """The text that each element of a CSS selector shows; all of one moment."""
        return self._each(selector, "element => element.innerText")

    def boxes(self, selector: str) -> list[dict[str, float]]:
        """Where each element of a CSS selector is and how large, in CSS pixels; all of one moment."""
        return self._each(selector, "element => element.getBoundingClientRect().toJSON()")

    def style(self, selector: str, name: str) -> str:
        """A property of the style of the first element of a CSS selector, once it is there."""
        read = f"element => getComputedStyle(element).getPropertyValue({json.dumps(name)})"
        return str(self._once(lambda: self._each(selector, read), f"the style of {selector}")[0])

    def is_shown(self, selector: str) -> bool:
        """Whether the first element of a CSS selector is visible, once it is there."""
        read = "element => element.checkVisibility({visibilityProperty: true})"
        return bool(self._once(lambda: self._each(selector, read), selector)[0])

    def all(self, selector: str) -> list[WebElement]:
        """All elements of a CSS selector. Of parts that are live, they are gone the next moment."""
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    def press(self, name: str, row: str = "") -> None:
        """Click the first visible button or link with that text, in the row of a table that has the text
        ``row``; wait for the page after it.
        """
        try:
            self._once(lambda: self.run(_ROW + _CLICK, row, name), name)
        except AssertionError as error:
            raise AssertionError(f"no {name!r} on {self.url}, which shows: {self.text}") from error
        self._once(lambda: not self.run("return window.isBefore"), f"a page after {name!r}")

    def enter(self, name: str, value: str) -> None:
        """Set the field of that name, or choose from it, as the keyboard would."""
        self._once(lambda: self._fill(f"main [name={name}]", value), f"the field {name}")

    def _fill(self, selector: str, value: str) -> bool:
        for field in self.all(selector)[:1]:
            if field.tag_name == "select":
                Select(field).select_by_visible_text(value)
            else:
                field.clear()
                field.send_keys(value)
            return True
        return False

    def tick(self, row: str) -> None:
        """Tick the check box of the row of a table that has this text."""
        self._once(lambda: self.run(_ROW + _TICK, row), f"{row!r} on {self.url}")

    def _each(self, selector: str, read: str) -> list[Any]:
        elements = "[...document.querySelectorAll(arguments[0])]"
        return list(self.run(f"return {elements}.map({read})", selector))

    @staticmethod
    def _once(action: Callable[[], T], message: str) -> T:
        """What ``action`` returns once that is true, tried again if the page under it was replaced."""

        def tried() -> T | None:
            # An element of the page before is gone, in one of several ways to say so.
            with contextlib.suppress(WebDriverException):
                return action()
            return None

        return wait_for(tried, message=message)

    def run(self, script: str, *args: Any) -> Any:
        """What a script in the page returns."""
        return self._driver.execute_script(script, *args)

    def resize(self, width: int, height: int = 900) -> None:
        """Make the page that wide, in CSS pixels; the window itself has a least width."""
        if self._size == (width, height):
            return
        self._size = width, height
        mobile = width < 600
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer the colours ``light`` or ``dark``; nothing moves."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        self._command("Emulation.setEmulatedMedia", features=features)

    def live_in(self, zone: str) -> None:
        """Have this time zone until ``reset``."""
        self._command("Emulation.setTimezoneOverride", timezoneId=zone)

    def forbid_scripts(self) -> None:
        """Run no JavaScript of pages until ``reset``."""
        self._command("Emulation.setScriptExecutionDisabled", value=True)

    def forbid_streams(self) -> None:
        """Have no event streams until the browser ends: pages stay as they were loaded."""
        self._command("Page.addScriptToEvaluateOnNewDocument", source="delete window.EventSource")

    def messages(self) -> list[str]:
        """The warnings and errors in the console since the last call, also of the page's policy."""
        entries = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def overflow(self) -> int:
        """How many pixels the page is wider than the window; 0 if nothing scrolls sideways."""
        root = "document.documentElement"
        return int(self.run(f"return {root}.scrollWidth - {root}.clientWidth"))

    def wider(self) -> list[str]:
        """The first elements that reach beyond the right edge of the window."""
        return [str(text) for text in self.run(_WIDER)]

    def has_focus(self, selector: str) -> bool:
        """Whether the element that has the focus is one of a CSS selector."""
        return bool(self.run("return document.activeElement.matches(arguments[0])", selector))

    def focused(self) -> WebElement:
        """The element that has the focus."""
        return self._driver.switch_to.active_element

    def type(self, *keys: str) -> None:
        """Press keys, in the element that has the focus."""
        ActionChains(self._driver).send_keys(*keys).perform()

    def violations(self, *rules: str) -> list[str]:
        """What axe finds wrong by these rules, or by all: each rule with the first elements that break it."""
        if not self.run("return 'axe' in window"):
            self.run(_AXE.read_text())
        # Not meta-refresh: a search or a task goes on by itself, says so, and can be left or stopped.
        options = {"resultTypes": ["violations"], "rules": {"meta-refresh": {"enabled": False}}}
        found = self._driver.execute_async_script(
            "const [options, done] = arguments;"
            "axe.run(document, options).then(r => done(JSON.stringify(r.violations)),"
            " e => done(JSON.stringify([{id: 'axe failed', help: String(e), nodes: []}])));",
            {**options, "runOnly": {"type": "rule", "values": rules}} if rules else options,
        )
        return [
            f"{rule['id']}: {rule['help']}: {[node['html'][:200] for node in rule['nodes'][:3]]}"
            for rule in json.loads(found)
        ]

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save what the window shows, or the whole page, as PNG."""
        if whole:
            height = int(self.run("return document.documentElement.scrollHeight"))
            width = int(self.run("return document.documentElement.clientWidth"))
            self.resize(width, height)
        self._driver.save_screenshot(str(path))

    def _command(self, name: str, **parameters: Any) -> Any:
        return self._driver.execute_cdp_cmd(name, parameters)


@contextlib.contextmanager
def running_chromium(folder: Path) -> Iterator[Chromium]:
    """Run a browser for this block."""
    browser = Chromium(folder)
    try:
        yield browser
    finally:
        browser.close()


Open = Callable[[str], Chromium]
"""Opens the page at a path of the dashboard."""
