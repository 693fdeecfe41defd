"""The page in a browser: chat, the live cache in its drawer, the guided start; keys; widths, colours, keyboard.

usage: page_test.py REPRISE
"""
import sys
import unittest

from selenium.webdriver.common.action_chains import ActionChains
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
        self.page.forget()
        self.page.show_cache()
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
        self.assertIn("tokens of context", self.page.text("#model"))
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
        self.assertTrue(page.one("#sure").is_displayed(), "it is asked first")
        page.script("document.querySelector('#sure button:last-child').click()")
        self.assertFalse(page.one("#sure").is_displayed())
        self.assertGreater(self.stored_tokens(), before)
        page.forget()
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

    def test_edit_shows_the_difference(self):
        page = self.page
        page.set_system(LONG)
        page.send(HELLO)
        page.send("Thank you.")
        page.click(".message.own .edit")
        page.script("document.querySelector('.editing textarea').value = arguments[0]", HELLO.replace("red ball", "blue boat"))
        page.click(".editing .main")
        page.until(lambda: len(page.all(".message")) == 2, "the new version")
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
        page.click("#undo button")
        self.assertEqual(len(page.all("#list .open")), 2)
        self.assertIn("I am the second", page.text(".message.own"), "and it is shown")
        page.open(clean=False)
        self.assertEqual(len(page.all("#list .open")), 2, "and kept")

    def test_conversations_can_be_renamed(self):
        page = self.page
        page.send("Hello")
        page.click("#list .rename")
        page.driver.switch_to.active_element.send_keys("A <b>better</b> name", Keys.ENTER)
        self.assertEqual(page.text("#list .open"), "A <b>better</b> name")
        page.click("#list .rename")
        page.driver.switch_to.active_element.send_keys("No", Keys.ESCAPE)
        page.open(clean=False)
        self.assertEqual(page.text("#list .open"), "A <b>better</b> name")

    def test_two_tabs_keep_each_others_conversations(self):
        page = self.page
        driver = page.driver
        first = driver.current_window_handle
        page.send("I am of the first tab.")
        driver.switch_to.new_window("tab")
        try:
            page.resize(1280, 800)
            page.open(clean=False)
            page.click("#new")
            page.send("I am of the second tab.")
            driver.switch_to.window(first)
            page.until(lambda: "second tab" in page.text("#list"), "what the other tab wrote")
            page.send("The first tab goes on.")
            titles = ["I am of the second tab.", "I am of the first tab."]
            self.assertEqual([n.text for n in page.all("#list .open")], titles)
            page.open(clean=False)
            self.assertEqual(sorted(n.text for n in page.all("#list .open")), sorted(titles))
            self.assertEqual([len(c["messages"]) for c in page.kept()], [4, 2])
            page.script("document.querySelectorAll('#list .remove')[1].click()")
            driver.switch_to.window([w for w in driver.window_handles if w != first][0])
            page.until(lambda: "second tab" not in page.text("#list"), "the other tab's deletion")
        finally:
            for window in driver.window_handles:
                if window != first:
                    driver.switch_to.window(window)
                    driver.close()
            driver.switch_to.window(first)

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

    def keep(self, *messages):
        self.page.keep(*messages)
        self.page.open(clean=False)

    def test_tables_and_nested_lists(self):
        self.keep({"role": "user", "content": "x"}, {"role": "assistant", "content":
                  "Sizes:\n| a | b \\| c |\n|---|--:|\n| 1 | **2** |\n| 3 |\n\n1. one\n   - x\n     - deep\n   - y\n\n2. two\n\nend"})
        shape = self.page.script("""const shape = (n) => n.tagName + ([...n.children].length ? '(' + [...n.children].map(shape).join(' ') + ')' : '');
          return [...document.querySelectorAll('.reply .text > *')].map(shape)""")
        self.assertEqual(shape, ["P", "DIV(TABLE(THEAD(TR(TH TH)) TBODY(TR(TD TD(STRONG)) TR(TD TD))))",
                                 "OL(LI(P UL(LI(UL(LI)) LI)) LI(P))", "P"])
        self.assertEqual(self.page.text(".reply th"), "a\nb | c")
        self.assertEqual(self.page.script("return getComputedStyle(document.querySelectorAll('.reply td')[1]).textAlign"), "end")

    def test_own_code_is_shown_as_code(self):
        self.keep({"role": "user", "content": "# no heading\n\n\n- no list\n```py\nx = 1\n```\nafter"}, {"role": "assistant", "content": "y"})
        self.assertEqual(self.page.text(".own pre"), "x = 1")
        self.assertEqual(self.page.script("return [...document.querySelectorAll('.own .text > *')].map(n => n.tagName)"), ["P", "FIGURE", "P"])
        self.assertIn("# no heading\n\n\n- no list", self.page.text(".own .text"))

    def test_tool_calls_are_shown(self):
        self.keep({"role": "user", "content": "x"}, {"role": "assistant", "content": "", "calls": [
            {"name": "get_<b>weather", "arguments": "{\"city\": \"K\u00f6ln\"}"}, {"name": "cut", "arguments": "{\"a\": "}]})
        self.assertEqual(self.page.text(".call figcaption span"), "Tool call: get_<b>weather\nTool call: cut")
        self.assertEqual(self.page.text(".call pre"), '{\n  "city": "K\u00f6ln"\n}\n{"a": ')

    def test_streamed_calls_are_put_together(self):
        self.assertEqual(self.page.driver.execute_async_script("""const done = arguments[0];
          import('/assets/chat/reply.js').then(({Reply}) => {
            const reply = new Reply({id: 'x', system: '', messages: []}, {role: 'assistant', content: ''}, {}, () => {});
            const chunk = (tool_calls) => reply.take({choices: [{delta: {tool_calls}}]});
            chunk([{index: 0, id: 'a', function: {name: 'f', arguments: ''}}]);
            chunk([{index: 0, function: {arguments: '{"x": '}}]);
            chunk([{index: 0, function: {arguments: '1}'}}]);
            chunk([{index: 1, id: 'b', function: {name: 'g', arguments: '{}'}}]);
            done(JSON.stringify(reply.message.calls));
          })"""), '[{"name":"f","arguments":"{\\"x\\": 1}","id":"a"},{"name":"g","arguments":"{}","id":"b"}]')

    def test_copy(self):
        self.page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        self.keep({"role": "user", "content": "mine"}, {"role": "assistant", "content": "**theirs**"})
        for selector, text in ((".own .copy", "mine"), (".reply .foot .copy", "**theirs**")):
            self.page.click(selector)
            self.page.wait(f"{selector}[title=Copied]")
            self.assertEqual(self.page.driver.execute_async_script(
                "navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))"), text)

    def test_streamed_markdown_is_the_same_as_whole(self):
        self.assertEqual(self.page.driver.execute_async_script("""const done = arguments[0];
          import('/assets/text/markdown.js').then(({MarkdownView}) => {
            const text = 'a **b**\\n\\n```js\\nx\\n\\ny\\n```\\n- 1\\n  1. 2\\n\\n  more\\n- 3\\nmore\\n\\n> q\\n> r\\n\\n## h\\ntext\\na|b\\n-|-\\n1|2\\nno\\n\\n1. x';
            const grown = new MarkdownView(), whole = new MarkdownView();
            for (let i = 0; i <= text.length; ++i) grown.update(text.slice(0, i));
            whole.update(text);
            done(grown.node.isEqualNode(whole.node) && whole.node.children.length > 5);
          })"""), True)

    def test_thinking_is_folded(self):
        page = self.page
        page.until(lambda: not page.all("label[hidden] #set-thinking"), "the switch")
        page.choose("set-thinking", "on")
        page.send("Tell me a story about a bear.")
        self.assertTrue(page.kept()[0]["messages"][1].get("reasoning"))
        self.assertFalse(page.one(".thinking").get_attribute("open"))
        self.assertTrue(page.one(".thinking summary").is_displayed())
        page.choose("set-thinking", "off")
        page.send("And now about a fox.")
        self.assertEqual(page.kept()[0]["messages"][3].get("reasoning", ""), "", "it can be switched off")

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
        page.script("document.getElementById('input').value = arguments[0];"
                    "document.getElementById('compose').requestSubmit()", "word " * 200000)
        page.until(lambda: page.text("#problem"), "the refusal")
        self.assertIn("context", page.text("#problem"))
        self.assertEqual(len(page.script("return document.getElementById('input').value")), 1000000, "it is not lost")
        self.assertEqual(page.all(".message"), [])
        page.send("Hello")
        self.assertNotEqual(self.last(".text:not(.plain)"), "", "the page goes on, without what was refused")
        self.assertEqual(page.text("#problem"), "")

    def test_the_last_lines_are_in_view(self):
        page = self.page
        hidden = """const end = document.querySelector('.message:last-of-type .foot').getBoundingClientRect().bottom;
                    return end - document.getElementById('compose').getBoundingClientRect().top"""
        for width, height in ((1280, 500), (390, 600)):
            page.resize(width, height)
            page.click("#new")
            for text in (HELLO, "And then?", "And after that?"):
                page.send(text)
                page.settle()
                self.assertLess(page.script(hidden), 1, (width, text))
            page.script("document.getElementById('input').style.height = '160px'")
            page.settle()
            self.assertLess(page.script(hidden), 1, "the field has grown")
            page.script("document.getElementById('input').style.height = ''")

    def test_the_tree_follows_the_request(self):
        page = self.page
        in_view = """const tree = document.querySelector('.tree').getBoundingClientRect();
          return [...document.querySelectorAll('.tree .label, .node.lit')].every(n => {
            const box = n.getBoundingClientRect(); return box.top >= tree.top - 1 && box.bottom <= tree.bottom + 1; })"""
        for i in range(8):
            page.click("#new")
            page.set_system(f"Text no. {i}. " + LONG)
            page.send(HELLO)
        page.until(lambda: "last request" in page.text(".tree .label"), "the label")
        page.wait("#more-tree:not([hidden])")
        self.assertRegex(page.text("#more-tree"), r"Show \d+ older branch")
        self.assertTrue(page.script(in_view))
        rows = len(page.all("[role=treeitem]"))
        page.click("#more-tree")
        page.until(lambda: len(page.all("[role=treeitem]")) > rows, "the older branches")
        page.script("document.querySelectorAll('#list .open')[6].click()")
        page.send("What then?")
        page.until(lambda: "reused" in page.text("#last-report summary"), "the report")
        page.settle()
        self.assertTrue(page.script(in_view), "the way of the last request is in view")

    def test_history_compares_like_with_like(self):
        """Few tokens take longer each than many: the words leave out short prompts, and prompts of which little was computed."""
        words = self.page.driver.execute_async_script("""const done = arguments[0];
          import('/assets/cache/reports.js').then(({Reports}) => import('/assets/cache/history_view.js').then(({HistoryView}) => {
            const reports = new Reports();
            const add = (prompt_tokens, used_tokens, first_token_ms) => reports.list.push(
              {id: String(reports.list.length), time_ms: 0, report: {prompt_tokens, used_tokens, first_token_ms}});
            add(2000, 0, 1000); add(2000, 1900, 60); add(20, 15, 9); add(2000, 1990, 60);
            const view = new HistoryView(() => {});
            view.set(reports);
            done(view.words.textContent);
          }))""")
        self.assertIn("for 1,000 tokens of the prompt: warm 30 ms, cold 500 ms", words)
        self.assertIn("for 1,000 tokens computed: warm 600 ms, cold 500 ms", words)

    def test_history_by_keyboard(self):
        page = self.page
        page.send(HELLO)
        page.send("And then?")
        page.until(lambda: len(page.all(".history .request")) >= 2, "the requests")
        page.script("document.querySelector('.history .request[tabindex=\"0\"]').focus()")
        # Keys go to what has the focus, also where the view was drawn anew in between.
        ActionChains(page.driver).send_keys(Keys.ARROW_LEFT).perform()
        chosen = page.script("return document.activeElement.dataset.id")
        self.assertIsNotNone(chosen)
        ActionChains(page.driver).send_keys(Keys.ENTER).perform()
        self.assertEqual(page.script("return document.activeElement.closest('.report')?.dataset.id"), chosen)

    def test_fingers(self):
        page = self.page
        page.send(HELLO)
        page.resize(390, 700)
        small = """return [...document.querySelectorAll('button, input, select, summary')].filter(n => n.checkVisibility())
          .map(n => [n.textContent, n.getBoundingClientRect().height]).filter(([, h]) => h < 43)"""
        for part in ("list", "chat", "cache"):
            page.show(part)
            page.settle()
            self.assertEqual(page.script(small), [], part)
        page.show("chat")
        room = page.script("return document.getElementById('messages').clientHeight / innerHeight")
        self.assertGreater(room, 0.55, "the chat has the room")

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
        for _ in range(80):
            page.driver.switch_to.active_element.send_keys(Keys.TAB)
            seen.add(page.script("const a = document.activeElement; return a.id || a.getAttribute('class') || a.tagName"))
        self.assertLessEqual({"input", "new", "reset"}, seen)
        self.assertFalse(page.one("#key-button").is_displayed(), "no keys are used here")

    def test_widths_colours_and_names(self):
        page = self.page
        page.set_system(LONG)
        page.send(HELLO)
        page.send("What next, `x` and **y**?")
        for scheme in ("light", "dark"):
            page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            for width in (1280, 400):
                page.resize(width, 800)
                for part in ("list", "chat", "cache"):
                    with self.subTest(scheme=scheme, width=width, part=part):
                        page.show(part)
                        page.settle()
                        self.assertEqual(page.script(CUT), [])
                        self.assertEqual(page.script(PALE), [])
                        self.assertEqual(page.script(NAMELESS), [])
                        self.assertLessEqual(page.script("return document.documentElement.scrollWidth"), width)
        page.media()


class SnapKv(unittest.TestCase):
    def test_what_was_kept(self):
        server = harness.Server(PROGRAM, "--threads", "1", "--snapkv-budget", "60", "--snapkv-window", "16", model=harness.TINY)
        page = browser.Browser(server)
        try:
            page.open()
            page.set_system(LONG)
            page.send(HELLO)
            page.wait(".report .bar.along")
            parts = page.script("return [...document.querySelectorAll('.report .bar.along')][0].children.length")
            shades = page.script("return [...document.querySelectorAll('.report .bar.along span')].map(n => +n.style.opacity)")
            self.assertEqual(parts, 64)
            self.assertEqual([shades[0], shades[-1]], [1, 1], "the first tokens and the window")
            self.assertLess(sum(shades) / len(shades), 0.7)
            self.assertIn("Lossy: the reply saw the K/V of 60 of", page.script("return document.querySelector('.report .lossy').textContent"))
            self.assertEqual(page.script(NAMELESS), [])
            self.assertEqual(page.complaints(), [])
        finally:
            page.close()
            assert server.stop() == 0


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
            self.assertTrue(page.one("#key-button").is_displayed())
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
