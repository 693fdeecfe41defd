"""The chat of the page in a browser: versions, Continue, search, files, presets, tools, Markdown, keys, colours.

usage: chat_test.py REPRISE
"""
import json
import pathlib
import sys
import tempfile
import unittest

from selenium.webdriver.common.keys import Keys

import browser
import harness
from browser import said

PROGRAM = sys.argv.pop(1)
DAY_MS = 86400000
REPORT = {"id": "chatcmpl-1", "choices": [], "reprise": {
    "prompt_tokens": 100, "used_tokens": 90, "known_tokens": 90, "kv_tokens": 90, "state_tokens": 90, "snapshots_taken": 0,
    "snapshots_declined": 0, "restore_ms": 0, "queue_ms": 0, "first_token_ms": 50, "total_ms": 1050, "generated_tokens": 41, "reason": "new"}}
OPACITY = "return +getComputedStyle(document.querySelector(arguments[0])).opacity"


class Chat(browser.Test):
    program = PROGRAM

    def setUp(self):
        self.page.resize(1400, 900)
        self.page.open()
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()
        self.assertEqual(self.page.complaints("status of 400"), [])
        self.assertEqual(self.page.foreign_requests(), [])

    def file(self, name, content):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def shown(self):
        """The texts of the messages that are shown."""
        return self.page.script("return [...document.querySelectorAll('.message .body')].map(n => n.innerText.trim())")

    def kept(self):
        return self.page.kept()


class Layout(Chat):
    def test_the_cache_is_a_drawer(self):
        page = self.page
        for width in (1400, 1000, 420):
            with self.subTest(width):
                page.resize(width, 900)
                page.open()
                page.answer_with([said("Hello"), REPORT])
                page.send("Hi")
                self.assertFalse(page.one("#cache").is_displayed(), "the chat comes first")
                page.click(".report-line")
                self.assertTrue(page.one("#cache").is_displayed())
                page.one("#cache-close").click()
                self.assertFalse(page.one("#cache").is_displayed())
                self.assertEqual(page.script("return document.activeElement.id"), "cache-button", "the focus is not lost")
                page.show_cache()
                page.press(Keys.ESCAPE)
                self.assertFalse(page.one("#cache").is_displayed())

    def test_the_list_can_be_closed_and_stays_so(self):
        page = self.page
        page.one("#list-button").click()
        self.assertFalse(page.one("#list").is_displayed())
        page.open(clean=False)
        self.assertFalse(page.one("#list").is_displayed())
        page.press(Keys.CONTROL, "b")
        self.assertTrue(page.one("#list").is_displayed())

    def test_the_list_lies_over_a_narrow_chat(self):
        page = self.page
        page.resize(420, 900)
        page.open()
        self.assertFalse(page.one("#list").is_displayed())
        page.one("#list-button").click()
        self.assertTrue(page.one("#list").is_displayed())
        page.script("document.getElementById('shade').click()")
        self.assertFalse(page.one("#list").is_displayed())

    def test_one_row_under_a_reply_on_a_phone(self):
        page = self.page
        page.answer_with([said("One"), REPORT], [said("Two"), REPORT])
        page.send("Hi")
        page.click(".message.reply .regenerate")
        page.wait_for_reply()
        page.resize(420, 900)
        page.settle()
        tops = page.script("return [...document.querySelectorAll('.message.reply .foot button')].filter(n => n.checkVisibility())"
                           ".map(n => { const box = n.getBoundingClientRect(); return (box.top + box.bottom) / 2 })")
        self.assertEqual(len(tops), 6, "‹ › copy, regenerate, continue, report")
        self.assertLess(max(tops) - min(tops), 4, tops)

    def test_buttons_are_shown_where_the_pointer_is(self):
        page = self.page
        page.answer_with([said("One"), REPORT], [said("Two"), REPORT])
        page.send("Hi")
        page.send("And?")
        self.assertEqual(page.script(OPACITY, ".message.own .tools"), 0)
        page.script("document.querySelector('.message.own .edit').focus()")
        page.until(lambda: page.script(OPACITY, ".message.own .tools") == 1, "the buttons, for the keyboard")
        page.script("document.activeElement.blur()")
        page.resize(390, 800)
        page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
        try:
            self.assertTrue(page.script("return matchMedia('(hover: none)').matches"))
            page.until(lambda: page.script(OPACITY, ".message.own .tools") == 1, "the buttons, where nothing hovers")
        finally:
            page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})

    def test_the_field_grows_to_a_bound(self):
        page = self.page
        height = "return document.getElementById('input').offsetHeight"
        one = page.script(height)
        page.one("#input").send_keys("a")
        for _ in range(2):
            page.press(Keys.SHIFT, Keys.ENTER)
        three = page.script(height)
        self.assertGreater(three, one + 30)
        page.script("const i = document.getElementById('input'); i.value = 'line\\n'.repeat(100); i.dispatchEvent(new Event('input'))")
        self.assertLessEqual(page.script(height), 0.4 * 900 + 1)
        self.assertGreater(page.script(height), 0.35 * 900)
        page.answer_with([said("Yes")])
        page.send("short")
        self.assertEqual(page.script(height), one, "it shrinks when the message is sent")

    def test_the_reader_is_left_where_they_are(self):
        page = self.page
        top = "return document.getElementById('messages').scrollTop"
        page.answer_with([said("word " * 600)], [[50, said("more words " * 20 + "\n\n")] for _ in range(60)])
        page.send("Write much.")
        page.send("Write more.", wait=False)
        page.until(lambda: "more words" in page.text(".message:last-of-type"), "the reply")
        self.assertFalse(page.one("#to-end").is_displayed())
        page.script("document.getElementById('messages').scrollTop -= 40")
        page.wait("#to-end:not([hidden])")
        at = page.script(top)
        said_then = len(page.text(".message:last-of-type"))
        page.until(lambda: len(page.text(".message:last-of-type")) > said_then + 400, "more of the reply")
        self.assertEqual(page.script(top), at, "40 pixels from the end are enough to stay")
        page.click("#to-end")
        page.wait_for_reply()
        page.settle()
        self.assertTrue(page.script("const m = document.getElementById('messages'); return m.scrollHeight - m.scrollTop - m.clientHeight < 2"))
        self.assertFalse(page.one("#to-end").is_displayed())

    def test_theme(self):
        page = self.page
        ground = "return getComputedStyle(document.body.parentElement).backgroundColor"
        page.media(prefers_color_scheme="light")
        light = page.script(ground)
        page.choose("set-theme", "dark")
        dark = page.script(ground)
        self.assertNotEqual(light, dark)
        page.open(clean=False)
        self.assertEqual(page.script(ground), dark, "it is kept")
        page.choose("set-theme", "system")
        self.assertEqual(page.script(ground), light)
        page.media(prefers_color_scheme="dark")
        self.assertEqual(page.script(ground), dark)
        page.choose("set-theme", "light")
        self.assertEqual(page.script(ground), light)
        page.media()

    def test_shortcuts(self):
        page = self.page
        page.script("document.activeElement.blur()")
        page.press("?")
        self.assertIn("New conversation", page.text("#shortcuts[open] dd"))
        page.press(Keys.ESCAPE)
        page.until(lambda: not page.all("#shortcuts[open]"), "the sheet to close")
        page.press("/")
        focused = "return document.activeElement.id"
        self.assertEqual(page.script(focused), "input")
        page.press("?")
        self.assertEqual(page.script("return document.getElementById('input').value"), "?", "a letter is a letter where one writes")
        page.press(Keys.CONTROL, "k")
        self.assertEqual(page.script(focused), "search")
        page.press(Keys.CONTROL, ".")
        self.assertTrue(page.one("#cache").is_displayed())
        page.press(Keys.CONTROL, ",")
        page.wait("#settings[open]")
        page.press(Keys.ESCAPE)
        page.set_number("max_tokens", 4)
        page.script("document.getElementById('input').value = ''")
        page.answer_with([said("One")], [said("Two")])
        page.send("The message")
        page.press(Keys.CONTROL, Keys.SHIFT, "e")
        page.until(lambda: "2/2" in page.text(".versions"), "a second version")
        page.script("document.getElementById('input').focus()")
        page.press(Keys.ARROW_UP)
        self.assertEqual(page.script("return document.activeElement.value"), "The message")
        page.press(Keys.ESCAPE)
        page.press(Keys.CONTROL, Keys.SHIFT, "o")
        self.assertEqual(page.all(".message"), [])

    def test_escape_stops_the_reply(self):
        page = self.page
        page.answer_with([said("Some")] + [[100, said(" more")] for _ in range(200)])
        page.send("Write.", wait=False)
        page.until(lambda: "more" in page.text(".message:last-of-type"), "the reply")
        page.press(Keys.ESCAPE)
        page.wait_for_reply()
        self.assertIn("Stopped", page.text(".message:last-of-type .foot"))


class Versions(Chat):
    def step(self, selector, name):
        self.page.click(f"{selector} [aria-label='{name} version']")

    def test_of_a_reply(self):
        page = self.page
        page.answer_with([said("First.")], [said("Second.")], [said("Behind the second.")])
        page.send("Hi")
        page.click(".reply .regenerate")
        page.until(lambda: "Second." in page.text(".reply"), "another reply")
        page.wait_for_reply()
        self.assertEqual(self.shown(), ["Hi", "Second."])
        self.assertEqual(page.text(".reply .versions"), "2/2")
        self.assertEqual(page.asked()[1]["messages"], [{"role": "user", "content": "Hi"}], "the first reply is not in its prompt")
        page.send("Go on")
        self.step(".reply", "Previous")
        self.assertEqual(self.shown(), ["Hi", "First."])
        self.assertEqual(page.text(".reply .versions"), "1/2")
        page.open(clean=False)
        self.assertEqual(self.shown(), ["Hi", "First."], "the choice is kept")
        self.step(".reply", "Next")
        self.assertEqual(self.shown(), ["Hi", "Second.", "Go on", "Behind the second."], "and nothing is lost")
        self.assertTrue(page.script("return document.querySelector(\".reply [aria-label='Next version']\").disabled"))

    def test_of_an_edited_message(self):
        page = self.page
        page.answer_with([said("A1")], [said("A2")], [said("B1")])
        page.send("One")
        page.send("Two")
        page.click(".own .edit")
        page.script("document.querySelector('.editing textarea').value = 'Uno'")
        page.click(".editing .main")
        page.until(lambda: "B1" in page.text(".reply"), "the reply to it")
        page.wait_for_reply()
        self.assertEqual(self.shown(), ["Uno", "B1"])
        self.assertEqual(page.asked()[2]["messages"], [{"role": "user", "content": "Uno"}])
        self.step(".own", "Previous")
        self.assertEqual(self.shown(), ["One", "A1", "Two", "A2"])
        self.assertEqual(len(self.kept()[0]["messages"]), 6)

    def test_conversations_of_old_are_one_way(self):
        self.page.keep({"role": "user", "content": "q1"}, {"role": "assistant", "content": "r1"}, {"role": "user", "content": "q2"})
        self.page.open(clean=False)
        self.assertEqual(self.shown(), ["q1", "r1", "q2"])

    def test_continue(self):
        page = self.page
        page.set_number("max_tokens", 6)
        page.send("Tell me a story about a cat.")
        page.wait(".reply .note")
        begun = self.kept()[0]["messages"][1]["content"]
        page.click(".reply .continue")
        page.until(lambda: page.all(".message.busy") or len(self.kept()[0]["messages"][1]["content"]) > len(begun), "more")
        page.wait_for_reply()
        messages = self.kept()[0]["messages"]
        self.assertEqual(len(messages), 2, "the same reply")
        self.assertTrue(messages[1]["content"].startswith(begun))
        self.assertGreater(len(messages[1]["content"]), len(begun))
        self.assertRegex(page.text(".reply .report-line .long"), r"\d+ of \d+ prompt tokens reused", "the beginning was known")
        page.answer_with([said(" END")])
        page.click(".reply .continue")
        page.until(lambda: "END" in page.text(".reply .text"), "the end")
        self.assertEqual(page.asked()[0]["messages"][-1], {"role": "assistant", "content": messages[1]["content"]})

    def test_speed(self):
        self.page.send("Tell me a story about a dog.")
        self.assertRegex(self.page.text(".report-line .long"), r"first token after [\d.]+ m?s · [\d.,]+ tokens/s( · \d+ of them guessed)?$")

    def test_guessed_tokens_are_said(self):
        page = self.page
        report = {"id": "chatcmpl-2", "choices": [], "reprise": {**REPORT["reprise"], "speculation": {
            "drafted": 20, "accepted": 12, "ngram": {"drafted": 14, "accepted": 8}, "tree": {"drafted": 6, "accepted": 4}, "rests": "nothing_to_draft"}}}
        page.answer_with([said("The same again."), report])
        page.send("Again?")
        self.assertRegex(page.text(".report-line .long"), r"40 tokens/s · 12 of them guessed$")

    def test_thinking_is_timed(self):
        page = self.page
        page.answer_with([{"choices": [{"delta": {"reasoning_content": "Hm. "}}]}, [800, {"choices": [{"delta": {"reasoning_content": "Yes."}}]}],
                          [700, said("42")]])
        page.send("What?", wait=False)
        page.until(lambda: page.text(".thinking summary").startswith("Thinking…"), "the thinking")
        page.wait_for_reply()
        self.assertRegex(page.text(".thinking summary"), r"^Thought for [1-9]\.\d s$")
        self.assertFalse(page.one(".thinking .text").is_displayed(), "folded")
        page.one(".thinking summary").click()
        self.assertEqual(page.one(".thinking .text").text, "Hm. Yes.")


class List(Chat):
    def titles(self):
        return self.page.script("return [...document.querySelectorAll('#conversations .title')].map(n => n.textContent)")

    def test_search_and_groups(self):
        page = self.page
        now = page.script("return Date.now()")
        for i, (text, age) in enumerate((("Cats", 0), ("Dogs", 3), ("Fish and <b>chips</b>", 400))):
            page.keep({"role": "user", "content": text}, {"role": "assistant", "content": f"About {text} and a Secret{i}."},
                      id=f"c{i}", changed=now - age * DAY_MS)
        page.open(clean=False)
        self.assertEqual(page.script("return [...document.querySelectorAll('#conversations h2')].map(n => n.textContent)"),
                         ["Today", "Last 7 days", "Older"])
        page.one("#search").send_keys("secret2")
        self.assertEqual(self.titles(), ["Fish and <b>chips</b>"])
        self.assertIn("<b>chips</b> and a Secret2", page.text("#conversations .piece"))
        page.press(Keys.ESCAPE)
        self.assertEqual(len(self.titles()), 3)
        page.one("#search").send_keys("nowhere")
        self.assertIn("No conversation has this", page.text("#conversations"))

    def test_folders(self):
        page = self.page
        for name in ("a", "b"):
            page.keep({"role": "user", "content": f"Title {name}"}, id=name)
        page.open(clean=False)
        page.click("#list .move")
        page.driver.switch_to.active_element.send_keys("Work", Keys.ENTER)
        self.assertEqual(page.text("#conversations h2").split("\n")[0], "Work")
        page.open(clean=False)
        self.assertEqual(page.text("#conversations h2").split("\n")[0], "Work")
        page.click("#list .move")
        page.driver.switch_to.active_element.send_keys(Keys.BACKSPACE, Keys.ENTER)
        self.assertNotIn("Work", page.text("#conversations h2"))

    def exported(self, button):
        self.page.script("window.blobs = []; window.create = window.create ?? URL.createObjectURL;"
                         "URL.createObjectURL = (blob) => { window.blobs.push(blob); return 'data:,' }")
        self.page.click(button)
        return self.page.driver.execute_async_script("const done = arguments[0]; window.blobs[0].text().then(done)")

    def take(self, content):
        self.page.one("#import-file").send_keys(self.file("import.json", content))
        self.page.until(lambda: self.page.text("#list-note"), "what became of it")
        return self.page.text("#list-note")

    def test_export_and_import(self):
        page = self.page
        page.answer_with([said("First.")], [said("Second.")])
        page.send("Hi")
        page.click(".reply .regenerate")
        page.until(lambda: "Second." in page.text(".reply"), "another reply")
        page.wait_for_reply()
        text = self.exported("#export-all")
        self.assertEqual(json.loads(text)["format"], "reprise-conversations")
        self.assertEqual(len(json.loads(self.exported("#list .export"))["conversations"]), 1)
        self.assertIn("0 conversations imported", self.take(text), "they are here")
        page.open()
        self.assertIn("1 conversation imported", self.take(text))
        self.assertEqual(self.shown(), ["Hi", "Second."])
        page.open(clean=False)
        self.assertEqual(page.text(".versions"), "2/2", "with its versions, and kept")

    def test_what_cannot_be_imported(self):
        good = {"format": "reprise-conversations", "version": 1, "conversations": [{"id": "x", "messages": [{"role": "user", "content": "ok"}]}]}
        for change, why in (
                (b"\xff\xfe", "not JSON"), ("[]", "not exported from this page"), ({"format": "other"}, "not exported from this page"),
                ({"version": 2}, "newer version"), ({"conversations": [{}]}, "Conversation 1 of this file is damaged"),
                ({"conversations": [good["conversations"][0], {"id": "y", "messages": [{"role": "root", "content": ""}]}]}, "Conversation 2"),
                ({"conversations": [{"id": "y", "messages": [{"role": "user", "content": 5}]}]}, "damaged"),
                ({"conversations": [{"id": "y", "messages": [{"role": "user", "content": "", "report": {"prompt_tokens": "<b>"}}]}]}, "damaged"),
                ({"conversations": [{"id": "y", "messages": [{"role": "user", "content": ""}] * 10001}]}, "damaged"),
                ({"conversations": good["conversations"] * 5001}, "at most 5000")):
            with self.subTest(why):
                said_then = self.take(json.dumps({**good, **change}) if isinstance(change, dict) else change)
                self.assertIn(why, said_then)
                self.assertEqual(self.titles(), [], "all or nothing")
        crooked = {"id": "<img src=x>", "messages": [{"id": 9, "parent": 9, "role": "user", "content": "round", "evil": 1}], "more": 1}
        self.assertIn("1 conversation imported", self.take(json.dumps({**good, "conversations": [crooked]})))
        kept = self.kept()[0]
        self.assertEqual((kept["messages"][0]["parent"], kept.get("more"), kept["messages"][0].get("evil")), (0, None, None))

    def test_a_full_browser(self):
        page = self.page
        page.script("IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError') }")
        page.answer_with([said("Yes")])
        page.send("Hi")
        self.assertIn("This browser keeps no more", page.text("#list-note"))
        self.assertEqual(self.shown(), ["Hi", "Yes"], "the chat goes on")


class Request(Chat):
    def ask(self, text, *replies):
        self.page.answer_with(*(replies or [[said("Yes")]]))
        self.page.send(text)
        return self.page.asked()

    def test_files(self):
        page = self.page
        page.one("#attach-file").send_keys(self.file("notes.md", "Some\n```\ncode\n```\n") + "\n" + self.file("b.txt", "B"))
        page.until(lambda: len(page.all("#files li")) == 2, "the files")
        page.click("#files li:last-child button")
        asked = self.ask("What is in it?")
        self.assertEqual(asked[0]["messages"][-1]["content"], "File notes.md:\n````\nSome\n```\ncode\n```\n````\n\nWhat is in it?")
        self.assertEqual(page.all("#files li"), [], "they went with the message")
        self.assertIn("notes.md", page.text(".own .file summary"))
        page.open(clean=False)
        self.assertIn("notes.md", page.text(".own .file summary"))
        for name, content, why in (("x.bin", b"\x00\x01", "is not a text file"), ("y.png", b"\x89PNG\xff", "this model reads text only"),
                                   ("big.txt", b"a" * ((1 << 20) + 1), "at most 1.0 MiB")):
            page.one("#attach-file").send_keys(self.file(name, content))
            page.until(lambda why=why: why in page.text("#problem"), why)
        self.assertEqual(page.all("#files li"), [])

    def test_presets(self):
        page = self.page
        page.set_system("Speak like a pirate.")
        page.set_number("temperature", 0.3)
        page.script("document.getElementById('preset-name').value = 'Pirate'")
        page.click("#preset-save")
        page.set_number("temperature", 1.5)
        page.set_system("")
        page.open(clean=False)
        page.choose("preset", "Pirate")
        asked = self.ask("Hi")
        self.assertEqual(asked[0]["temperature"], 0.3)
        self.assertEqual(asked[0]["messages"][0], {"role": "system", "content": "Speak like a pirate."})
        page.click("#preset-remove")
        self.assertNotIn("Pirate", page.text("#preset"))

    def test_schema(self):
        page = self.page
        page.script("document.getElementById('schema').value = '{'; document.getElementById('schema').dispatchEvent(new Event('change'))")
        self.assertIn("not a schema", page.text("#schema-problem"))
        schema = {"type": "object", "properties": {"animal": {"enum": ["cat", "dog"]}}, "required": ["animal"], "additionalProperties": False}
        page.script("document.getElementById('schema').value = arguments[0]; document.getElementById('schema').dispatchEvent(new Event('change'))",
                    json.dumps(schema))
        self.assertEqual(page.text("#schema-problem"), "")
        self.assertIn("Replies as JSON", page.text("#notes"))
        page.send("Which animal?")
        self.assertIn(json.loads(self.kept()[0]["messages"][1]["content"])["animal"], ("cat", "dog"))
        page.click("#new")
        self.assertEqual(page.all("#notes"), [], "it holds for its conversation")

    def test_tools(self):
        page = self.page
        call = lambda name, **arguments: {"choices": [{"delta": {"tool_calls": [  # noqa: E731
            {"index": 0, "id": "c1", "function": {"name": name, "arguments": json.dumps(arguments)}}]}, "finish_reason": "tool_calls"}]}
        for name in ("calculate", "read_file"):
            page.click(f"#tool-{name}")
        self.assertIn("Calculator, Read a file", page.text("#notes"))
        asked = self.ask("6 times 7?", [call("calculate", expression="6 * 7")], [said("42")])
        self.assertEqual([tool["function"]["name"] for tool in asked[0]["tools"]], ["calculate", "read_file"])
        page.until(lambda: len(page.asked()) == 2, "the second request")
        self.assertEqual(page.asked()[1]["messages"][-2:], [
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {
                "name": "calculate", "arguments": "{\"expression\": \"6 * 7\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "{\"result\":42}"}])
        page.until(lambda: self.shown()[-1] == "42", "the answer")
        self.ask("Now?", [call("current_time")], [said("I cannot.")])
        page.until(lambda: len(page.asked()) == 2, "the second request")
        self.assertIn("there is no tool", page.asked()[1]["messages"][-1]["content"], "it was not switched on")
        page.wait_for_reply()
        self.choose_files(call)

    def choose_files(self, call):
        page = self.page
        for choose in (True, False):
            page.answer_with([call("read_file")], [said("Read.")])
            page.send("Read my file.", wait=False)
            page.wait(".asked button")
            if choose:
                page.one(".asked-file").send_keys(self.file("mine.txt", "My text"))
            else:
                page.click(".asked button:last-child")
            page.until(lambda: len(page.asked()) == 2, "the second request")
            self.assertIn("My text" if choose else "did not choose", page.asked()[1]["messages"][-1]["content"])
            page.wait_for_reply()
            self.assertEqual(page.all(".asked-file"), [])

    def test_calculator(self):
        results = self.page.driver.execute_async_script("""const [texts, done] = arguments;
          import('/assets/chat/calculator.js').then(({calculate}) => done(texts.map(text => {
            try { return calculate(text) } catch (error) { return error.message } })))""", [
                "1 + 2 * 3", "(1 + 2) * 3", "2 ^ 3 ^ 2", "-2 ^ 2", "2 ** -1", "10 % 4", "sqrt(16) + max(1, 2, 3)", "1.5e3 / 3", "2 * PI",
                "1 / 0", "alert(1)", "constructor", "1 +", "(1", "1 2", "x", "[1]", "((" * 400, "1" * 501, "toString()", "1;2"])
        self.assertEqual([round(r, 6) for r in results[:9]], [7, 9, 512, -4, 0.5, 2, 7, 500, 6.283185])
        for result in results[9:]:
            self.assertIsInstance(result, str)

    def test_model_picker(self):
        page = self.page
        # A server that says how much of a model is read.
        page.script("""window.state = 'loading'; const real = window.fetch;
          const answers = {
            '/v1/models': () => Response.json({data: [
              {id: 'one', max_model_len: 4096}, {id: 'two<b>', max_model_len: 40960, status: {value: window.state}}]}),
            '/models/sse': () => new Response(new ReadableStream({start(stream) {
              window.say = (status) => stream.enqueue(new TextEncoder().encode(
                'data: ' + JSON.stringify({models: [{id: 'one', status: {value: 'loaded'}}, {id: 'two<b>', status}]}) + '\\n\\n'));
            }})),
          };
          window.fetch = (path, options) => (answers[path] ? Promise.resolve(answers[path]()) : real(path, options));
          document.getElementById('set-model').focus()""")
        page.until(lambda: "two<b> (loading)" in page.text("#set-model"), "the models")
        page.until(lambda: page.script("return !!window.say"), "somebody who listens")
        page.script("window.say({value: 'loading', progress: 0.42})")
        page.until(lambda: "two<b> (loading 42 %)" in page.text("#set-model"), "how much is read")
        page.choose("set-model", "two<b>")
        self.assertIn("40,960 tokens of context", page.text("#context"))
        page.script("window.state = 'loaded'; window.say({value: 'loaded'})")
        page.until(lambda: "(loading" not in page.text("#set-model"), "the end of loading")
        self.assertEqual(self.ask("Hi")[0]["model"], "two<b>")


class Markdown(Chat):
    def reply(self, text):
        self.page.keep({"role": "user", "content": "x"}, {"role": "assistant", "content": text})
        self.page.open(clean=False)

    def test_formulas(self):
        page = self.page
        self.reply("Roots $x^2$ and \\(y\\):\n\n$$\\sqrt{2}$$\n\n\\[\nz\n\\]\n\nIt costs $5 or $10; $\\def\\a{1}\\a$, $\\nothing{$ and `$c$`.")
        page.until(lambda: len(page.all(".maths.drawn .katex")) == 4, "the formulas")
        self.assertEqual(len(page.all(".maths.display")), 2)
        self.assertIn("It costs $5 or $10; $\\def\\a{1}\\a$, $\\nothing{$ and $c$.", page.text(".reply p:last-child"))
        fonts = page.driver.execute_async_script("const done = arguments[0]; document.fonts.ready.then(() => "
                                                 "done([...document.fonts].filter(f => f.status === 'loaded').length))")
        self.assertGreater(fonts, 0, "KaTeX's fonts are in the binary")

    def test_code_has_colours(self):
        page = self.page
        self.reply("```python\ndef f(x):\n\treturn '<b>'  # no\n```\n\n```nonsense\nx\n```\n\n```makefile\nall:\n\tcc x\n```")
        page.until(lambda: page.all(".code .t-keyword"), "the colours")
        self.assertEqual(page.text(".code pre"), "def f(x):\n\treturn '<b>'  # no\nx\nall:\n\tcc x", "tabs stay tabs")

    def test_lists_tasks_and_fences_in_fences(self):
        page = self.page
        self.reply("1. one\n   ```js\n   a\n   ```\n2. two\n   - [x] done\n   - [ ] to do\n\n> q\n> - l\n\n~~~~md\n```c\nint\n```\n~~~~\n\n"
                   "| a | b |\n|:-:|--:|\n| 1 | **2** |\n")
        self.assertEqual(page.script("return [...document.querySelectorAll('.reply .text > *')].map(n => n.tagName)"),
                         ["OL", "BLOCKQUOTE", "FIGURE", "DIV"])
        self.assertEqual(page.script("return document.querySelectorAll('.reply ol > li').length"), 2)
        self.assertEqual(page.text(".reply ol pre"), "a")
        self.assertEqual(page.script("return [...document.querySelectorAll('.task input')].map(n => [n.checked, n.disabled])"), [[True, True], [False, True]])
        self.assertEqual(page.text(".reply blockquote li"), "l")
        self.assertEqual(page.text(".reply .text > figure pre"), "```c\nint\n```")

    def test_links(self):
        page = self.page
        self.reply("[a](https://a.example/x) https://b.example/y?z=1. <https://c.example> [js](javascript:alert(1)) [r]: ![i](https://d.example/i.png)\n\n"
                   "[ref][1] [data](data:text/html,x)\n\n[1]: https://e.example")
        self.assertEqual(page.script("return [...document.querySelectorAll('.reply a')].map(n => n.getAttribute('href'))"),
                         ["https://a.example/x", "https://b.example/y?z=1", "https://c.example", "https://e.example"])
        self.assertEqual(page.all(".reply img"), [])
        self.assertIn("javascript:alert(1)", page.text(".reply p"))
        self.assertEqual(page.script("return [...document.querySelectorAll('.reply a')].every(n => n.rel === 'noopener noreferrer' && n.target === '_blank')"), True)

    def test_licences(self):
        self.page.script("document.getElementById('settings-button').click()")
        href = self.page.one("#settings a").get_attribute("href")
        text = self.page.driver.execute_async_script("const [url, done] = arguments; fetch(url).then(r => r.text()).then(done)", href)
        for name in ("marked", "katex", "prism", "SIL"):
            self.assertIn(name.lower(), text.lower())


class Access(Chat):
    def check(self, what):
        found = self.page.driver.execute_async_script("""const done = arguments[0];
          axe.run(document, {resultTypes: ['violations']}).then(({violations}) =>
            done(violations.map(v => v.id + ': ' + v.nodes.map(n => n.target.join(' ') + ' ' + (n.any[0]?.message ?? '')).slice(0, 3).join('; '))))""")
        self.assertEqual(found, [], what)

    def test_axe_finds_nothing(self):
        page = self.page
        reply = ("# Title\n\nSome **bold**, `code`, $x^2$ and [a link](https://example.org/).\n\n- [x] done\n\n```python\ndef f(x):\n    return 1  # no\n```\n\n"
                 "| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted")
        page.answer_with([{"choices": [{"delta": {"reasoning_content": "Hm."}}]}, said(reply), REPORT], [said("Second."), REPORT])
        page.script(AXE.read_text())
        self.check("empty")
        page.send("Hi `there`")
        page.wait(".katex")
        page.wait(".t-keyword")
        page.script("window.fetch = window.realFetch")
        page.set_number("max_tokens", 8)
        page.send("Tell me a story.")
        for scheme in ("light", "dark"):
            page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            for width in (1400, 420):
                page.resize(width, 900)
                for part in ("chat", "list", "cache"):
                    page.show(part)
                    page.settle()
                    self.check(f"{scheme} {width} {part}")
                page.show("chat")
                for name in ("settings", "shortcuts"):
                    page.click(f"#{name}-button")
                    page.settle()
                    self.check(f"{scheme} {width} {name}")
                    page.press(Keys.ESCAPE)
        page.media()

    def test_everything_is_reached_by_keyboard(self):
        page = self.page
        page.answer_with([said("One"), REPORT], [said("Two"), REPORT])
        page.send("Hi")
        page.click(".reply .regenerate")
        page.wait_for_reply()
        page.script("document.querySelector('.skip').focus()")
        wanted = {"New conversation", "Search the conversations", "Rename Hi", "Delete Hi", "Model", "Cache", "Settings", "Edit", "Copy", "Previous version",
                  "Regenerate", "Continue", "Attach text files", "Message", "Send"}
        seen = set()
        for _ in range(50):
            page.press(Keys.TAB)
            seen.add(page.script("const a = document.activeElement; return a.getAttribute('aria-label') || a.textContent.trim()"))
        self.assertEqual(wanted - seen, set())


AXE = harness.ROOT / "build/clients/node_modules/axe-core/axe.min.js"
# arguments: how (paste or drop), the picture's width and height. A picture as if from elsewhere.
HAND_OVER = """const [how, width, height, done] = arguments, canvas = new OffscreenCanvas(width, height);
canvas.getContext('2d').fillRect(5, 5, 20, 10);
canvas.convertToBlob({type: 'image/png'}).then((blob) => {
  const data = new DataTransfer();
  data.items.add(new File([blob], `${how}${'-long'.repeat(12)}.png`, {type: 'image/png'}));
  if (how === 'paste') document.getElementById('input').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
  else document.getElementById('chat').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
  done();
});"""


class Seeing(unittest.TestCase):
    """With a tiny random model that sees."""

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, "--threads", "1", "--device", "cpu", model=harness.ROOT / "tests/vision/qwen3_5")
        cls.page = browser.Browser(cls.server)
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        cls.page.close()
        assert cls.server.stop() == 0

    def setUp(self):
        self.page.open()
        self.page.wait("#attach[aria-label='Attach pictures or text files']")

    def tearDown(self):
        self.assertEqual(self.page.complaints("status of 400"), [])
        self.assertEqual(self.page.foreign_requests(), [])

    def hand_over(self, how, width=64, height=48):
        before = len(self.page.all("#files li"))
        self.page.driver.execute_async_script(HAND_OVER, how, width, height)
        self.page.until(lambda: len(self.page.all("#files li")) > before, "the picture")

    def sizes(self, selector):
        """Of the pictures, in pixels of their own."""
        return self.page.driver.execute_async_script("""const [selector, done] = arguments;
          const all = [...document.querySelectorAll(selector)];
          Promise.all(all.map(one => one.decode())).then(() => done(all.map(one => [one.naturalWidth, one.naturalHeight])))""", selector)

    def attach(self, name, content):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(content)
        self.page.one("#attach-file").send_keys(str(path))

    def test_pictures_are_chosen_pasted_and_dropped(self):
        page = self.page
        corpus = harness.ROOT / "tests/corpus/picture_fuzz"
        self.attach("chosen.webp", (corpus / "lossless.webp").read_bytes())
        page.wait("#files img")
        self.hand_over("paste")
        self.hand_over("drop", 3000, 1000)  # is made smaller
        self.attach("notes.txt", b"Notes.")
        page.until(lambda: len(page.all("#files li")) == 4, "the files")
        self.assertEqual(self.sizes("#files img")[1:], [[64, 48], [1536, 512]])
        page.click("#files li:first-child button")
        page.answer_with([said("I see."), REPORT], [said("Again."), REPORT])
        page.send("What is it?")
        *pictures, text = page.asked()[0]["messages"][0]["content"]
        self.assertEqual([part["type"] for part in pictures], ["image_url"] * 2)
        self.assertTrue(all(part["image_url"]["url"].startswith("data:image/png;base64,") for part in pictures))
        self.assertEqual(text, {"type": "text", "text": "File notes.txt:\n```\nNotes.\n```\n\nWhat is it?"})
        page.send("And now?")
        self.assertEqual(page.asked()[1]["messages"][0]["content"], [*pictures, text], "the same prefix")

    def test_they_stay_with_the_conversation(self):
        page = self.page
        page.set_number("max_tokens", 4)
        self.hand_over("paste")
        page.one("#send").click()  # without a word
        page.until(lambda: len(page.all(".message")) == 2, "the message")
        page.wait_for_reply()
        self.assertEqual(page.all(".reply .error"), [])
        self.assertEqual(self.sizes(".own .picture img"), [[64, 48]])
        kept = page.kept()[0]
        page.open(clean=False)
        page.wait(".own .picture img")
        self.assertEqual(self.sizes(".own .picture img"), [[64, 48]])
        page.click(".own .picture")
        self.assertTrue(page.all(".own .picture[aria-expanded=true]"))
        page.send("Look again.")
        self.assertEqual(page.all(".reply .error"), [])
        self.assertRegex(page.all(".report-line")[-1].get_attribute("textContent"), r"[1-9]\d* of \d+ prompt tokens reused")
        # What is kept or imported may be anything: other addresses are no pictures.
        kept["messages"][0]["files"] = [{"name": "x", "image": "https://elsewhere.example/x.png"}]
        page.database(f"store.put({json.dumps(json.dumps(kept))}, {json.dumps(kept['id'])})", "readwrite")
        page.open(clean=False)
        self.assertEqual(page.all(".picture"), [])

    def test_what_is_no_picture_is_said(self):
        self.attach("broken.png", b"\x89PNG\r\n")
        self.page.until(lambda: "is not a picture that this browser can read" in self.page.text("#problem"), "the reason")
        self.assertEqual(self.page.all("#files li"), [])

    def test_axe_finds_nothing(self):
        page = self.page
        page.answer_with([said("I see."), REPORT])
        self.hand_over("paste")
        page.send("What is it?")
        self.hand_over("drop")
        page.script(AXE.read_text())
        for scheme in ("light", "dark"):
            page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            for width in (1400, 420):
                page.resize(width, 900)
                page.settle()
                found = page.driver.execute_async_script("""const done = arguments[0];
                  axe.run(document, {resultTypes: ['violations']}).then(({violations}) => done(violations.map(v => v.id)))""")
                self.assertEqual(found, [], f"{scheme} {width}")
                self.assertLessEqual(page.script("return document.documentElement.scrollWidth"), width, "nothing is wider than the window")
        page.media()


class Agents(unittest.TestCase):
    def test_calls_of_a_server_are_answered(self):
        """The scripted model calls a tool that the page does not have, reads the page's answer and goes on."""
        server = harness.Server(PROGRAM, "--threads", "1")
        page = browser.Browser(server)
        try:
            page.open()
            page.click("#tool-calculate")
            page.send("What is the weather?")
            page.until(lambda: "It is sunny in Paris today." in page.text(".message:last-of-type .text"), "the answer after the call")
            self.assertIn("there is no tool", page.text(".call .result-text"))
            self.assertEqual(page.complaints(), [])
        finally:
            page.close()
            assert server.stop() == 0


if __name__ == "__main__":
    unittest.main()
