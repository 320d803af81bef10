"""One headless Chromium for all tests of a worker, and what a test asks of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "chromedriver": ("chromedriver",)}
OPTIONS = (
    "--headless=new",
    # A container's root may not sandbox, and has no graphics card.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    # The browser itself asks for nothing either.
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
INSIDE = ("file:", "data:", "blob:")
SECONDS = 20
"""That a page may take to do as it is told, on a busy machine."""


class Browser:
    """A window: pages from disk, what they say on the console, and what they ask for."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(
        self,
        path: Path,
        *,
        width: int = 1280,
        height: int = 800,
        scheme: str = "light",
        motion: str = "reduce",
    ) -> None:
        """Show a file in a window of that size, to a reader who likes it light or dark, still or moving."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.like(scheme=scheme, motion=motion)
        self.show(path.as_uri())

    def show(self, address: str) -> None:
        """Go to an address; what other pages said and asked for is forgotten."""
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(address)

    def like(self, *, scheme: str, motion: str = "reduce") -> None:
        """What the reader has told the system."""
        likes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in likes.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})

    def run(self, script: str, *arguments: Any) -> Any:
        """What JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        """The first element."""
        return self.driver.find_element("css selector", selector)

    def find_all(self, selector: str) -> list[Any]:
        """All elements, in the order of the page."""
        return self.driver.find_elements("css selector", selector)

    def press(self, key: str) -> None:
        """A key, to whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(getattr(Keys, key))

    def wait(self, condition: Any) -> Any:
        """Until the condition, a function without arguments, holds."""
        return WebDriverWait(self.driver, SECONDS, poll_frequency=0.05).until(lambda _: condition())

    def complaints(self) -> list[str]:
        """Errors and warnings on the console since the page was opened."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def requests_outside(self) -> list[str]:
        """Addresses that the page has asked for since it was opened, other than files beside it."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        addresses = [each["request"]["url"] for each in sent]
        assert addresses, "the browser reports no request at all, not even for the page"
        return [address for address in addresses if not address.startswith(INSIDE)]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """The window that tests share, one after the other."""
    found = {name: next(filter(None, map(shutil.which, names)), None) for name, names in PROGRAMS.items()}
    if missing := [name for name, path in found.items() if path is None]:
        pytest.skip(f"no {' and no '.join(missing)} here; install with: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(found["chromedriver"]))
    yield Browser(driver)
    driver.quit()
