"""A headless Chromium for the tests of the page: see Browser."""
import json
import pathlib
import shutil
import sys
import time
import unittest

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import harness  # noqa: E402

PATIENCE_S = 60  # for what takes long on a busy machine

# Replies for the page, by a fetch of our own.
SCRIPTED = """window.asked = [];
const replies = [...arguments[0]], real = window.realFetch ?? window.fetch;
window.realFetch = real;
window.fetch = (path, options) => {
  if (path !== '/v1/chat/completions' || replies.length === 0) return real(path, options);
  window.asked.push(JSON.parse(options.body));
  const chunks = replies.shift(), encoder = new TextEncoder();
  return Promise.resolve(new Response(new ReadableStream({
    async start(stream) {
      for (const part of chunks) {
        const [wait, chunk] = Array.isArray(part) ? part : [0, part];
        if (wait) await new Promise((done) => setTimeout(done, wait));
        if (options.signal.aborted) return stream.error(options.signal.reason);
        stream.enqueue(encoder.encode(`data: ${JSON.stringify(chunk)}\\n\\n`));
      }
      stream.enqueue(encoder.encode('data: [DONE]\\n\\n'));
      stream.close();
    },
  })));
};"""


def said(content, **delta):
    """A chunk of a reply."""
    return {"choices": [{"delta": {"content": content, **delta}}]}


class Test(unittest.TestCase):
    """Tests that share a server of the bundled model, and a browser, with all others of their program. `program`: REPRISE."""

    program = None
    server = None
    page = None

    @classmethod
    def setUpClass(cls):
        if Test.page is None:
            Test.server = harness.Server(cls.program, "--threads", "1", model=harness.TINY)
            Test.page = Browser(Test.server)
            unittest.addModuleCleanup(Test.stop)

    @staticmethod
    def stop():
        Test.page.close()
        assert Test.server.stop() == 0


class Browser:
    """One browser with one tab. `server`: a harness.Server."""

    def __init__(self, server, width=1280, height=800):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        # As with a mouse: a machine of tests has none.
        options.add_argument("--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4")
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                         "--disable-background-networking", "--hide-scrollbars"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(PATIENCE_S)
        self.url = f"http://127.0.0.1:{server.port}"
        self.requested = []
        self.resize(width, height)

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def media(self, **features):
        """media(prefers_color_scheme="dark")"""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]})

    def slow_down(self, bytes_per_second):
        """Of what arrives; -1: no limit."""
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {
            "offline": False, "latency": 0, "downloadThroughput": bytes_per_second, "uploadThroughput": -1})

    def hide(self, hidden):
        """As if the tab were in the background, where the page does not watch the cache."""
        self.script("Object.defineProperty(document, 'hidden', {value: arguments[0], configurable: true});"
                    "document.dispatchEvent(new Event('visibilitychange'))", hidden)

    def open(self, clean=True, wait="#link.live"):
        """The page as on a first visit (or with what the browser has kept)."""
        self.driver.get(self.url)
        if clean:
            # Replies are kept short, for the tests' time.
            self.wait("#top-end button")  # the page is done with what was kept before
            self.database("store.clear()", "readwrite")
            self.driver.execute_script("localStorage.clear(); sessionStorage.clear();"
                                       "localStorage.setItem('reprise.settings', arguments[0])", json.dumps({"max_tokens": 200}))
            self.driver.get(self.url)
        if wait:
            self.wait(wait)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.script("return [...document.querySelectorAll(arguments[0])].map(n => n.textContent).join('\\n')", selector)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"waited in vain for {what}; the page says: {self.text('main')[-600:]!r}")

    def wait(self, selector):
        return self.until(lambda: self.all(selector), selector)[0]

    def settle(self):
        """Until what was asked for is drawn."""
        self.driver.execute_async_script("const done = arguments[0]; let n = 3; "
                                         "const f = () => n-- ? requestAnimationFrame(f) : done(); f()")

    def click(self, selector):
        self.script("document.querySelector(arguments[0]).click()", selector)

    def send(self, text, wait=True):
        before = len(self.all(".message"))
        self.script("const i = document.getElementById('input'); i.value = arguments[0]; i.focus()", text)
        self.one("#input").send_keys(Keys.ENTER)
        self.until(lambda: len(self.all(".message")) >= before + 2, "the message")
        if wait:
            self.wait_for_reply()

    def show_cache(self, shown=True):
        """Opens the drawer, or closes it."""
        self.script("if ((document.documentElement.dataset.cache === 'open') !== arguments[0]) document.getElementById('cache-button').click()", shown)

    def show(self, part):
        """'list', 'chat' or 'cache', where only one of them has room."""
        self.show_cache(part == "cache")
        self.script("if ((document.documentElement.dataset.list === 'open') !== arguments[0]) document.getElementById('list-button').click()",
                    part == "list")

    def press(self, *keys):
        """Keys together: press(Keys.CONTROL, 'k')."""
        chain = ActionChains(self.driver)
        for key in keys[:-1]:
            chain.key_down(key)
        chain.send_keys(keys[-1])
        for key in keys[:-1]:
            chain.key_up(key)
        chain.perform()

    def answer_with(self, *replies):
        """The next replies, instead of the server's: each a list of chunks, or of [milliseconds before it, chunk].
        What the page asks for is kept in window.asked."""
        self.script(SCRIPTED, replies)

    def asked(self):
        return self.script("return window.asked")

    def database(self, work, mode="readonly"):
        """Does `work` to the `store` of conversations; returns its result."""
        return self.driver.execute_async_script("""
          const done = arguments[1], open = indexedDB.open('reprise', 1);
          open.onsuccess = () => {
            const transaction = open.result.transaction('conversations', arguments[0]);
            const store = transaction.objectStore('conversations');
            const request = %s;
            transaction.oncomplete = () => { open.result.close(); done(request.result ?? null); };
          };""" % work, mode)

    def kept(self):
        """The conversations that the browser has kept, newest first."""
        return sorted(map(json.loads, self.database("store.getAll()")), key=lambda c: -c["changed"])

    def keep(self, *messages, **more):
        """As if these had been said in this browser, by a version of the page that kept them elsewhere."""
        self.script("localStorage.setItem('reprise.conversation.' + arguments[0].id, JSON.stringify(arguments[0]))",
                    {"id": "m", "title": "", "system": "", "changed": 1, "messages": messages, **more})

    def forget(self):
        """Empties the cache, as asked and confirmed."""
        self.click("#reset")
        self.click("#reset-yes")

    def wait_for_reply(self):
        self.until(lambda: not self.all(".message.busy") and self.all("#stop[hidden]"), "the reply")

    def set_system(self, text):
        self.script("""const s = document.getElementById('system'); s.value = arguments[0];
                       s.dispatchEvent(new Event('change'))""", text)

    def choose(self, name, value):
        self.script("""const s = document.getElementById(arguments[0]); s.value = arguments[1];
                       s.dispatchEvent(new Event('change'))""", name, value)

    def set_number(self, name, value):
        self.script("""const s = document.getElementById('set-' + arguments[0]); s.value = arguments[1];
                       s.dispatchEvent(new Event('change'))""", name, value)

    def complaints(self, *expected):
        """What the console says that is wrong, but for lines that contain one of `expected`."""
        lines = [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
        return [line for line in lines if not any(part in line for part in expected)]

    def foreign_requests(self):
        """Addresses that were asked for and are not the server's."""
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
        own = (self.url + "/", "data:", "about:", "chrome:")
        return [url for url in self.requested if not url.startswith(own)]

    def screenshot(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))

    def close(self):
        self.driver.quit()
