"""lm-evaluation-harness scores and generates through /v1/completions, with the server's own tokenizer.

usage: lm_eval_test.py REPRISE
"""
import unittest

import setting
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI


def requests(kind, *arguments):
    return [Instance(request_type=kind, doc={}, arguments=each, idx=i) for i, each in enumerate(arguments)]


class LmEval(setting.ServerTest):
    def model(self, **more):
        return LocalCompletionsAPI(model="scripted", base_url=self.server.url + "/v1/completions", max_length=4096, **more)

    def test_log_probabilities(self):
        asked = requests("loglikelihood", ("<|say|>", "Hello there"), ("<|say|>", "Hello friend"), ("<|say|>", "xyz"))
        for more in ({"tokenizer_backend": "remote"}, {"tokenizer_backend": "remote", "batch_size": 3}):
            (said, greedy), *others = self.model(**more).loglikelihood(asked, disable_tqdm=True)
            self.assertTrue(greedy)
            self.assertGreater(said, -0.01)
            for unsaid, likely in others:
                self.assertFalse(likely)
                self.assertLess(unsaid, -1)

    def test_generation(self):
        options = {"until": [" parrot"], "max_gen_toks": 20}
        said = self.model(tokenizer_backend="remote").generate_until(
            requests("generate_until", ("<|say|>", options)), disable_tqdm=True)
        self.assertEqual(said, ["Hello there, little"])


if __name__ == "__main__":
    unittest.main()
