"""What the tests of this folder share: the server with the scripted model, and what that says."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

PROGRAM = sys.argv.pop(1)
SAID = "Hello there, little parrot friend"  # without tools
CALLED = {"city": "Paris"}                  # of get_weather, with tools
ANSWER = "It is sunny in Paris today."      # after the result


class ServerTest(unittest.TestCase):
    options = ()
    context = 4096

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, "--alias", "scripted", "--alias", "gpt-*", "--alias", "claude-*", *cls.options,
                                    context=cls.context)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
