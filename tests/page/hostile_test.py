"""Whatever is said, stored or reported is shown as text: eighty hostile strings as messages, replies, thoughts, titles, errors;
and through the server into the tree and the reports.

usage: hostile_test.py REPRISE
"""
import re
import sys
import unittest

import browser
import hostile

PROGRAM = sys.argv.pop(1)
MEGABYTE = 1 << 20

# Everything inside the shown texts that a text should not be able to bring about.
CHECK = """const good = new Set('P STRONG EM S CODE A UL OL LI BLOCKQUOTE H3 H4 H5 H6 HR BR FIGURE FIGCAPTION PRE SPAN BUTTON DIV svg path'.split(' '));
const bad = [];
for (const n of document.querySelectorAll('.text *, #list *, .tree-detail *, .difference *')) {
  if (n.tagName === 'INPUT' && n.type === 'checkbox' && n.disabled) continue;  // a task
  if (!good.has(n.tagName) && !n.closest('#list, .difference, .tree-detail')) bad.push(n.outerHTML.slice(0, 200));
  for (const a of n.attributes) {
    if (a.name.startsWith('on') || a.name === 'src' || (a.name === 'style' && !n.closest('.katex'))) bad.push(a.name + '=' + a.value);
    if (a.name === 'href' && !/^(https?:|mailto:)/.test(a.value)) bad.push(a.value);
  }
}
if (document.querySelector('script:not([src^="/assets/"]), iframe, object, embed, img, base, body meta, body link, body style')) bad.push('element');
if (window.wasHit) bad.push('a script ran');
return bad"""


def shown(text):
    """What the page makes of a text: control characters by name (as in dom.js)."""
    def name(match):
        code = ord(match.group())
        return chr(0x2400 + code) if code < 0x20 else f"[U+{code:04X}]"
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e]", name, text.replace("\r\n", "\n"))


class Hostile(browser.Test):
    program = PROGRAM

    def check(self):
        self.assertEqual(self.page.script(CHECK), [])
        self.assertEqual(self.page.complaints(), [])
        self.assertEqual(self.page.foreign_requests(), [])

    def put(self, conversations):
        self.page.open()
        self.page.script("localStorage.setItem('reprise.conversations', JSON.stringify(arguments[0]))", conversations)
        self.page.open(clean=False)
        self.page.script("window.hit = () => { window.wasHit = true }")

    def test_strings_in_every_place(self):
        self.assertGreaterEqual(len(set(hostile.STRINGS)), 50)
        messages = []
        for text in hostile.STRINGS:
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": text, "reasoning": text, "error": text})
        titled = [{"id": f"t{i}", "title": text, "system": text, "messages": [{"role": "user", "content": text}],
                   "guide": {"title": text, "error": text}} for i, text in enumerate(hostile.STRINGS)]
        self.put([{"id": "all", "title": "", "system": "", "messages": messages}] + titled)
        self.page.script("document.querySelectorAll('details').forEach(n => { n.open = true })")
        own = self.page.script("return [...document.querySelectorAll('.own .text')].map(n => n.textContent)")
        thought = self.page.script("return [...document.querySelectorAll('.thinking .text')].map(n => n.textContent)")
        failed = self.page.script("return [...document.querySelectorAll('.message .error')].map(n => n.textContent)")
        said = self.page.script("return [...document.querySelectorAll('.reply .text:not(.plain)')].map(n => n.textContent)")
        for i, text in enumerate(hostile.STRINGS):
            with self.subTest(text):
                if not re.search("^ {0,3}(```|~~~)", text, re.M):  # code has a frame of its own
                    self.assertEqual(own[i][:4000], shown(text)[:4000])
                self.assertEqual(thought[i], shown(text))
                self.assertEqual(failed[i], shown(text))
                if text in hostile.SCRIPTS:
                    self.assertEqual(said[i], shown(text), "no markdown in it: all of it is shown")
        self.check()
        for i in range(0, len(hostile.STRINGS), 7):
            self.page.script("document.querySelectorAll('#list .open')[arguments[0] + 1].click()", i)
            self.check()

    def test_strings_through_the_server(self):
        self.put([])
        self.page.set_number("max_tokens", 1)
        self.page.set_system("A system prompt with <img src=x onerror=hit()> in it. " * 8)
        for text in hostile.SCRIPTS[:6] + hostile.MARKDOWN[:3] + hostile.CHARACTERS[:7]:
            self.page.click("#new")
            self.page.send(text)
        self.page.show_cache()
        self.page.wait(".difference ins")
        self.page.wait("#more-tree:not([hidden])")
        self.page.click("#more-tree")
        self.page.until(lambda: len(self.page.all("[role=treeitem]")) > 10, "the whole tree")
        self.page.script("""for (const n of document.querySelectorAll('[role=treeitem]'))
                              n.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))""")
        self.assertIn("script>hit()</script>", self.page.script(
            "return [...document.querySelectorAll('[role=treeitem]')].map(n => n.getAttribute('aria-label')).join()"))
        self.check()

    def test_a_megabyte(self):
        for line in ("x" * MEGABYTE, "word <b> " * (MEGABYTE // 9), "*a* `b` [c](d) " * (MEGABYTE // 15), "- x\n" * 20000, "[" * 100000):
            message = [{"role": "user", "content": line}, {"role": "assistant", "content": line}]
            self.put([{"id": "long", "title": "", "system": "", "messages": message}])
            self.assertEqual(self.page.script("return document.querySelectorAll('.message').length"), 2)
            self.check()


if __name__ == "__main__":
    unittest.main()
