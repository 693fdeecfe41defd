"""The page in a browser: chat, the live cache beside it, the guided start; keys; widths, colours, keyboard.

usage: page_test.py REPRISE
"""
import sys
import unittest

from selenium.webdriver.common.keys import Keys

import browser
import harness

PROGRAM = sys.argv.pop(1)
LONG = ("You are a kind storyteller. You tell short stories for children, with animals, gardens and rivers in them. "
        "Every story ends well, and nobody is ever hurt. You use simple words and short sentences. ") * 2
HELLO = "Tell me a story about a cat and a red ball."

# The accessible name of everything that can be used, roughly as browsers compute it.
NAMELESS = """return [...document.querySelectorAll('button, input, textarea, select, summary, [role=treeitem]')]
  .filter(n => n.checkVisibility() && !(n.getAttribute('aria-label') || n.textContent.trim() || n.labels?.length))
  .map(n => n.outerHTML)"""
# What sticks out of the window to the right.
CUT = """const wide = document.documentElement.clientWidth;
return [...document.querySelectorAll('body *')].filter(n => {
  const box = n.getBoundingClientRect();
  return n.checkVisibility() && box.width > 0 && (box.right > wide + 1 || box.left < -1) &&
    !n.closest('pre, .skip, .unseen, svg *');
}).map(n => n.tagName + '.' + n.className)"""
# Text that does not stand out enough from what is behind it (WCAG 2 AA: 4.5).
PALE = """const rgb = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
const light = (c) => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 });
  return .2126 * r + .7152 * g + .0722 * b };
const behind = (n) => { for (; n; n = n.parentElement) { const c = rgb(getComputedStyle(n).backgroundColor);
  if (c.length === 3 || c[3] > .99) return c } return [255, 255, 255] };
const bad = [];
for (const n of document.querySelectorAll('body *')) {
  if (!n.checkVisibility() || n.closest('svg, .unseen, .skip') || ![...n.childNodes].some(c => c.nodeType === 3 && c.data.trim())) continue;
  const a = light(rgb(getComputedStyle(n).color)), b = light(behind(n));
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  if (ratio < 4.5) bad.push(n.tagName + '.' + n.className + ' ' + ratio.toFixed(2) + ' ' + n.textContent.slice(0, 30));
}
return bad"""


class Page(browser.Test):
    program = PROGRAM

    def setUp(self):
        self.page.resize(1280, 800)
        self.page.open()
        self.page.click("#reset")
        self.page.wait(".tree[hidden]")

    def tearDown(self):
        self.assertEqual(self.page.complaints("status of 400"), [])
        self.assertEqual(self.page.foreign_requests(), [])

    def last(self, selector=""):
        return self.page.script("return document.querySelector('.message:last-of-type ' + arguments[0])?.textContent ?? ''", selector)

    def stored_tokens(self):
        return int(self.page.text("#stored").split(" ")[0].replace(",", "") or 0)

    def test_first_visit(self):
        self.page.until(lambda: "reprise-tiny" in self.page.text("#model"), "the name of the model")
        self.assertEqual(len(self.page.all("[data-scenario]")), 3)
        self.assertIn("Nothing is stored yet", self.page.text("#cache"))
        self.assertIn("Memory", self.page.text("#cache"))

    def test_second_turn_reuses(self):
        page = self.page
        page.set_system(LONG)
        page.send(HELLO)
        self.assertGreater(len(self.last(".text:not(.plain)")), 5)
        self.assertIn("computed", self.last(".report-line"))
        page.wait("[role=treeitem].lit .computed")
        before = self.stored_tokens()
        page.send("What happened then?")
        self.assertRegex(self.last(".report-line"), r"\d+ of \d+ prompt tokens reused")
        page.until(lambda: "reused" in page.text("#last-report summary"), "the report")
        page.wait("[role=treeitem].lit .reused")
        page.send("And then?")
        page.until(lambda: self.stored_tokens() > before, "a tree that grows")
        page.wait(".tree .snapshot")
        page.click("#reset")
        page.wait(".tree[hidden]")

    def test_report_that_is_asked_for_stays(self):
        """It is shown though it arrives after the reply, and keeps the focus and what is open in it when others arrive."""
        page = self.page
        in_focus = "return document.activeElement.closest('.report')?.dataset.id"
        page.hide(True)
        page.send(HELLO)
        page.click(".message:last-of-type .report-line")
        self.assertIsNone(page.script(in_focus))
        page.hide(False)
        page.until(lambda: page.script(in_focus), "the report, opened")
        asked = page.script(in_focus)
        self.assertEqual(asked, page.script("return document.querySelector('#last-report .report').dataset.id"))
        page.script("document.activeElement.closest('.report').querySelector('.report details > summary').focus();"
                    "document.activeElement.click()")
        self.assertEqual(page.text("#last-report .report details[open] > summary"), "All numbers")
        page.script("document.getElementById('input').value = 'And then?';"
                    "document.getElementById('compose').requestSubmit()")
        page.wait(f"#earlier-reports [data-id='{asked}'][open] details[open]")
        self.assertEqual(page.script(in_focus), asked)
        page.wait_for_reply()

    def test_stop(self):
        page = self.page
        page.slow_down(12000)
        page.set_number("max_tokens", 2000)
        page.send("Tell me a very long story about a dog, a cat, a bird and a fish.", wait=False)
        page.until(lambda: self.last(".text:not(.plain)"), "some text")
        page.click("#stop")
        page.wait_for_reply()
        page.slow_down(-1)
        self.assertIn("Stopped", self.last(".foot"))
        said = self.last(".text:not(.plain)")
        page.send("Hello")
        self.assertIn(said, page.text("#messages"), "what was said stays")

    def test_regenerate(self):
        page = self.page
        page.set_system(LONG)
        page.send(HELLO)
        page.script("document.querySelector('.message:last-of-type').dataset.old = 1")
        page.script("[...document.querySelectorAll('.message:last-of-type button')].at(-1).click()")
        page.until(lambda: not page.all("[data-old]"), "a new reply")
        page.wait_for_reply()
        self.assertEqual(len(page.all(".message")), 2)
        self.assertIn("reused", self.last(".report-line"))

    def test_edit_shows_the_difference(self):
        page = self.page
        page.set_system(LONG)
        page.send(HELLO)
        page.send("Thank you.")
        page.click(".message.own button")
        page.script("document.querySelector('.editing textarea').value = arguments[0]", HELLO.replace("red ball", "blue boat"))
        page.click(".editing .main")
        page.until(lambda: len(page.all(".message")) == 2, "the rest to be dropped")
        page.wait_for_reply()
        self.assertIn("blue boat", page.text(".message.own"))
        page.until(lambda: page.all("#last-report del"), "the difference")
        self.assertEqual(page.text("#last-report del").split()[:2], ["red", "ball"])
        self.assertEqual(page.text("#last-report ins").split()[:2], ["blue", "boat"])

    def test_conversations_are_kept(self):
        page = self.page
        page.send("Hello, I am the first.")
        page.click("#new")
        page.send("Hello, I am the second.")
        page.open(clean=False)
        self.assertEqual([n.text for n in page.all("#list .open")], ["Hello, I am the second.", "Hello, I am the first."])
        page.script("document.querySelectorAll('#list .open')[1].click()")
        self.assertIn("I am the first", page.text(".message.own"))
        page.click("#list .remove")
        self.assertEqual(len(page.all("#list .open")), 1)

    def test_markdown(self):
        reply = ("# Title\n\nSome **bold**, *slanted*, `code` and [a link](https://example.org/).\n\n- one\n- two\n\n1. first\n2. second\n\n"
                 "```python\nprint('<b>')\n```\n\n> quoted\n\n---\nlast")
        self.page.script("localStorage.setItem('reprise.conversations', JSON.stringify([{id: 'm', title: '', system: '', messages: "
                         "[{role: 'user', content: 'x'}, {role: 'assistant', content: arguments[0]}]}]))", reply)
        self.page.open(clean=False)
        tags = self.page.script("return [...document.querySelectorAll('.reply .text > *')].map(n => n.tagName)")
        self.assertEqual(tags, ["H3", "P", "UL", "OL", "FIGURE", "BLOCKQUOTE", "HR", "P"])
        self.assertEqual(self.page.text(".reply pre"), "print('<b>')")
        self.assertEqual(self.page.text(".reply p strong, .reply p em, .reply p code, .reply p a"), "bold\nslanted\ncode\na link")

    def test_streamed_markdown_is_the_same_as_whole(self):
        self.assertEqual(self.page.driver.execute_async_script("""const done = arguments[0];
          import('/assets/markdown.js').then(({MarkdownView}) => {
            const text = 'a **b**\\n\\n```js\\nx\\n\\ny\\n```\\n- 1\\n- 2\\nmore\\n\\n> q\\n> r\\n\\n## h\\ntext\\n\\n1. x';
            const grown = new MarkdownView(), whole = new MarkdownView();
            for (let i = 0; i <= text.length; ++i) grown.update(text.slice(0, i));
            whole.update(text);
            done(grown.node.isEqualNode(whole.node) && whole.node.children.length > 5);
          })"""), True)

    def test_thinking_is_folded(self):
        page = self.page
        page.click("#set-thinking")
        page.send("Tell me a story about a bear.")
        self.assertTrue(page.script("return JSON.parse(localStorage['reprise.conversations'])[0].messages[1].reasoning"))
        self.assertFalse(page.one(".thinking").get_attribute("open"))
        self.assertTrue(page.one(".thinking summary").is_displayed())

    def test_scenarios_save_work(self):
        page = self.page
        for name in ("document", "edit", "shared"):
            with self.subTest(name):
                page.click("#new")
                page.click(f"[data-scenario={name}]")
                page.wait(".result table")
                cells = page.script("return [...document.querySelectorAll('.result tbody td')].map(n => n.textContent)")
                computed, reused, _, computed_again, reused_again, _ = [c.replace(",", "") for c in cells]
                self.assertEqual(int(reused) if name != "shared" else 0, 0)
                self.assertGreater(int(reused_again), 500)
                self.assertLess(int(computed_again), int(computed) / 4)

    def test_too_long_a_message_is_refused_clearly(self):
        page = self.page
        page.send("word " * 200000)
        self.assertIn("context", self.last(".error"))
        page.send("Hello")
        self.assertNotEqual(self.last(".text:not(.plain)"), "", "the page goes on, without what was refused")

    def test_keyboard(self):
        page = self.page
        page.set_system(LONG)
        page.send(HELLO)
        page.click("#new")
        page.send("Sing me a song about the sea.")
        page.until(lambda: len(page.all("[role=treeitem]")) > 1, "branches")
        page.script("document.querySelector('[role=treeitem][tabindex=\"0\"]').focus()")
        page.driver.switch_to.active_element.send_keys(Keys.HOME)
        first = page.text(".tree-detail")
        self.assertIn("positions 0 to", first)
        page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        page.until(lambda: page.text(".tree-detail") != first, "the next node's text")
        seen = set()
        for _ in range(40):
            page.driver.switch_to.active_element.send_keys(Keys.TAB)
            seen.add(page.script("const a = document.activeElement; return a.id || a.getAttribute('class') || a.tagName"))
        self.assertLessEqual({"input", "new", "key-button", "reset"}, seen)

    def test_widths_colours_and_names(self):
        page = self.page
        page.set_system(LONG)
        page.send(HELLO)
        page.send("What next, `x` and **y**?")
        page.script("document.getElementById('settings').open = true")
        for scheme in ("light", "dark"):
            page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            for width in (1280, 400):
                page.resize(width, 800)
                for part in ("list", "chat", "cache"):
                    with self.subTest(scheme=scheme, width=width, part=part):
                        page.click(f"[data-show={part}]")
                        page.settle()
                        self.assertEqual(page.script(CUT), [])
                        self.assertEqual(page.script(PALE), [])
                        self.assertEqual(page.script(NAMELESS), [])
                        self.assertLessEqual(page.script("return document.documentElement.scrollWidth"), width)
        page.media()


class ApiKeys(unittest.TestCase):
    def test_key(self):
        server = harness.Server(PROGRAM, "--threads", "1", "--api-key", "right", model=harness.TINY)
        page = browser.Browser(server)
        try:
            page.open(wait="#key-dialog[open]")
            self.assertIn("needs an API key", page.text("#key-why"))
            for key, said in (("wrong", "does not know this API key"), ("right", "Live")):
                page.script("document.getElementById('key-input').value = arguments[0]", key)
                page.click("#key-save")
                page.until(lambda said=said: said in page.text("#link"), said)
            page.send("Hello")
            page.wait(".report-line")
            self.assertEqual(page.foreign_requests(), [])
            self.assertEqual(page.complaints("status of 401"), [])
            page.script("sessionStorage.clear()")
            page.send("Hello again")
            self.assertIn("needs an API key", page.text(".message:last-of-type .error"))
            self.assertTrue(page.all("#key-dialog[open]"))
        finally:
            page.close()
            server.stop()


if __name__ == "__main__":
    unittest.main()
