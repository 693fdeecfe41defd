"""Reuse as a client sees it: chats over HTTP on the bundled hybrid, with its chat template.

usage: reuse_test.py REPRISE

In each scenario a request may recompute the tokens that are new in it, and at most 64 more (the distance between
snapshots). The number is read from cached_tokens and must be the one in the report, which names the reason and the
place of what was not reused. Scenarios do not see each other: each has a namespace of its own.
"""
import concurrent.futures
import re
import sys
import time
import unittest
import urllib.request

import harness
import kept_state
from kept_state import SLACK, STORY, user

PROGRAM = sys.argv.pop(1)
SYSTEM = {"role": "system", "content": "You tell short stories about animals. " + STORY * 8}


class Reuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, model=harness.TINY)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def post(self, path, body):
        return kept_state.post(self.server, path, body)

    def count(self, text):
        return len(self.post("/tokenize", {"content": text, "add_special": False})["tokens"])

    def ask(self, messages, new=None, **more):
        """The reply. `new`: the texts of the request that nobody has seen; None: no demand."""
        body = {"messages": messages, "temperature": 0, "max_tokens": 20, "cache_salt": self.id(), **more}
        reply = self.post("/v1/chat/completions", body)
        usage, report = reply["usage"], reply["reprise"]
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], report["used_tokens"])
        self.recomputed = usage["prompt_tokens"] - report["used_tokens"]
        self.report = report
        self.prompt_tokens = usage["prompt_tokens"]
        self.reply_tokens = usage["completion_tokens"]
        if new is not None:
            allowed = sum(self.count(text) + 8 for text in new) + SLACK  # 8: role and marks of a message
            self.assertLessEqual(self.recomputed, allowed, report)
        return reply["choices"][0]["message"]

    def wait_until_idle(self):
        """The next turn is prepared while nothing else is to do: it is submitted a moment after the reply."""
        calm = 0
        for _ in range(200):
            time.sleep(0.05)
            with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}/metrics") as answer:
                lines = answer.read().decode().splitlines()
            values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("reprise_requests_"))
            idle = all(float(values[f"reprise_requests_{state}"]) == 0 for state in ("running", "waiting", "idle"))
            calm = calm + 1 if idle else 0
            if calm == 6:
                return
        self.fail("the server does not come to rest")

    def test_identical_prompt(self):
        messages = [SYSTEM, user("Tell me a story about a fox.")]
        first = self.ask(messages)
        self.assertEqual(self.report["reason"], "cold")
        again = self.ask(messages, new=[])
        self.assertEqual(first["content"], again["content"])

    def test_second_turn(self):
        messages = [SYSTEM, user("Tell me a story about a fox. " + STORY * 4)]
        for question in ("What did the fox do then?", "And what did the bird say to him?"):
            reply = self.ask(messages, max_tokens=100)
            self.wait_until_idle()
            messages = messages + [{"role": "assistant", "content": reply["content"]}, user(question)]
            self.ask(messages, new=[question])
            messages = messages[:-1] + [user(question)]

    def test_constrained_reply(self):
        """What a constraint forces is said in the tokens that the text is cut into when it comes back."""
        said = (STORY * 3).strip()
        messages = [SYSTEM, user("Tell me the story, please.")]
        for rule in ({"choice": [said]}, {"regex": re.escape(said)}):
            with self.subTest(rule=list(rule)):
                reply = self.ask(messages, max_tokens=300, structured_outputs=rule)
                self.assertEqual(reply["content"], said)
                self.assertEqual(self.reply_tokens, self.count(said))
                self.ask(messages + [{"role": "assistant", "content": said}, user("Why?")], new=["Why?"])
                self.assertGreaterEqual(self.report["known_tokens"], self.prompt_tokens - self.count("Why?") - 16)

    def test_constraints_say_the_same_in_a_crowd_and_with_reuse(self):
        """Text, tokens and log probabilities to the last bit, among others that are held to something else."""
        schema = {"type": "object", "properties": {"animal": {"enum": ["fox", "bird", "frog"]}, "age": {"type": "integer"},
                                                   "name": {"type": "string", "maxLength": 12}},
                  "required": ["animal", "age", "name"], "additionalProperties": False}
        rules = [{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
                 {"structured_outputs": {"regex": "[a-f]{3,9}(, [0-9]+){2,5}"}}, {},
                 {"structured_outputs": {"choice": ["a bird", "a birch", "two frogs, both of them green"]}}]

        def ask(seed, salt):
            body = {"messages": [SYSTEM, user("Describe an animal.")], "cache_salt": salt, "seed": seed, "temperature": 1.5,
                    "max_tokens": 60, "logprobs": seed >= 4, "top_logprobs": 3 if seed >= 4 else None, **rules[seed % 4]}
            choice = self.post("/v1/chat/completions", body)["choices"][0]
            return choice["message"]["content"], choice.get("logprobs")
        seeds = range(8)
        alone = [ask(seed, f"alone {seed}") for seed in seeds]
        with concurrent.futures.ThreadPoolExecutor(len(seeds)) as pool:
            crowd = list(pool.map(lambda seed: ask(seed, "crowd"), seeds))
        self.assertEqual(crowd, alone)
        self.assertEqual([ask(seed, "crowd") for seed in seeds], alone)
        self.assertTrue(all(probabilities["content"] for _, probabilities in alone[4:]))

    def test_thinking_is_stripped_from_history(self):
        messages = [SYSTEM, user("Tell me a story about a bird. " + STORY * 4)]
        reply = self.ask(messages, chat_template_kwargs={"enable_thinking": True}, max_tokens=150)
        self.wait_until_idle()
        turn = {"role": "assistant", "content": reply["content"] or "",
                "reasoning_content": reply.get("reasoning_content", "")}
        self.ask(messages + [turn, user("Why?")], new=["Why?"], chat_template_kwargs={"enable_thinking": True})

    def test_system_prompt_in_a_new_conversation(self):
        self.ask([SYSTEM, user("Tell me a story about a fox.")])
        self.ask([SYSTEM, user("Now one about a frog, please.")], new=["Now one about a frog, please."])
        self.assertIn(self.report["reason"], ("diverged", "no_snapshot_here"))

    def test_edited_message(self):
        first, last = user("Tell me about the river. " + STORY * 4), user("And the forest? " + STORY * 2)
        middle = user("What about the mountain? " + STORY * 3)
        answer = {"role": "assistant", "content": "It was long. " + STORY}
        self.ask([SYSTEM, first, answer, middle, answer, last])
        edited = user("What about the sea? " + STORY * 3)
        self.ask([SYSTEM, first, answer, edited, answer, last],
                 new=[edited["content"], answer["content"], last["content"]])
        place = self.report["diverged"]
        self.assertTrue(place["before"].endswith("What about the"), place)
        self.assertTrue(place["after"].lstrip().startswith("sea"), place)

    def test_regenerate(self):
        messages = [SYSTEM, user("Tell me a story about a cat. " + STORY * 4)]
        self.ask(messages, temperature=1, seed=1)
        self.ask(messages, new=[], temperature=1, seed=2)

    def test_two_conversations_alternate(self):
        chats = [[SYSTEM, user(f"Tell me a story about a {animal}. " + STORY * 3)] for animal in ("dog", "cow")]
        for question in ("Why did it do that?", "Where did it go then?"):
            for chat in chats:
                reply = self.ask(chat, max_tokens=100)
                self.wait_until_idle()
                chat += [{"role": "assistant", "content": reply["content"]}, user(question)]
                self.ask(chat, new=[question])

    def test_stopped_reply_goes_on(self):
        messages = [SYSTEM, user("Tell me a long story about a bear. " + STORY * 4)]
        reply = self.ask(messages, max_tokens=5)
        self.wait_until_idle()
        history = messages + [{"role": "assistant", "content": reply["content"]}, user("Go on.")]
        self.ask(history, new=["Go on."])

    def test_tool_loop(self):
        messages = [SYSTEM, user("What is the weather like?")]
        self.ask(messages)
        for i in range(5):
            result = f"Station {i} says that it is {10 + i} degrees."
            messages += [{"role": "assistant", "content": None, "tool_calls": [
                {"id": f"call{i}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": f"call{i}", "content": result}]
            self.ask(messages, new=["", result])

    def test_what_the_client_switches_off(self):
        messages = [SYSTEM, user("Tell me a story about a hen.")]
        self.ask(messages)
        self.ask(messages, cache_prefix=False)
        self.assertEqual((self.report["used_tokens"], self.report["reason"]), (0, "disabled"))
        self.ask(messages, min_cache_tokens=100000)
        self.assertEqual((self.report["used_tokens"], self.report["reason"]), (0, "too_short"))
        self.ask(messages, cache_salt="another")
        self.assertEqual(self.report["used_tokens"], 0)

    def test_breakpoint_inside_a_message(self):
        context = {"type": "text", "text": STORY * 6, "prompt_cache_breakpoint": {"mode": "explicit"}}

        def question(text):
            return [{"role": "user", "content": [context, {"type": "text", "text": text}]}]
        self.ask(question("Who is in it?"))
        self.ask(question("Where does it happen?"), new=["Where does it happen?"])


if __name__ == "__main__":
    unittest.main()
