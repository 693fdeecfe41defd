"""`reprise pull`, `--model hf:` and `reprise models` against a hub that speaks the protocol, well and badly.

usage: pull_test.py REPRISE
"""
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import hub_server
from fault_schedules import make_gguf
from puller import ROOT, TINY, Puller, Serve

REPRISE = sys.argv.pop(1) if len(sys.argv) > 1 else "reprise"
NAME = "org/repo"


class Hub(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.gguf = make_gguf(REPRISE, cls.shared.name)

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.hub = self.start_hub()
        self.puller = Puller(REPRISE, self.folder.name, self.hub.endpoint)
        self.repo = hub_server.Repo({"README.md": b"# hello", "m-Q8_0.gguf": self.gguf, "m-Q4_0.gguf": self.gguf + b"!",
                                     "mmproj-F16.gguf": b"eyes"})
        self.hub.repos[NAME] = self.repo

    def start_hub(self, tls=None):
        hub = hub_server.HubServer(tls)
        self.addCleanup(hub.close)
        return hub

    def tearDown(self):
        self.folder.cleanup()

    def expect_pull(self, name=NAME + ":Q8_0", **more):
        result = self.puller.pull(name, **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return pathlib.Path(result.stdout.strip()), result.stderr

    def expect_refusal(self, words, name=NAME + ":Q8_0", **more):
        result = self.puller.pull(name, **more)
        self.assertEqual(result.returncode, 1, result.stderr)
        line = result.stderr.splitlines()[-1]
        self.assertTrue(line.startswith("reprise: "), result.stderr)
        for word in words:
            self.assertIn(word, line)
        return result.stderr

    def bodies(self):
        """Requests for a whole file or the rest of it; the look at its head before has an end."""
        return [entry for entry in self.hub.asked("storage", "GET") if not entry[3].get("range", "-")[-1].isdigit()]


class Pulls(Hub):
    def test_a_quantisation_lands_in_the_shared_layout(self):
        path, said = self.expect_pull(NAME + ":q8_0")
        self.assertEqual(path, self.puller.repo(NAME) / "snapshots" / self.repo.commit / "m-Q8_0.gguf")
        self.assertEqual(os.readlink(path), "../../blobs/" + hub_server.sha256(self.gguf))
        self.assertEqual((self.puller.repo(NAME) / "refs/main").read_text(), self.repo.commit)
        self.assertTrue((self.puller.cache / ".locks/models--org--repo").is_dir())
        self.assertEqual(self.puller.check_sound(NAME, self.repo), 1)
        self.assertIn("fits this machine with a context of", said)
        self.assertRegex(said, r"at most \S+ tokens/s for one reply: each token reads \d\S* \S+, at \S+ GB/s \(measured\)")
        self.assertIn("goes with it: org/repo:mmproj-F16.gguf", said)
        self.expect_pull()
        self.assertEqual(len(self.bodies()), 1)  # the second pull has asked for none

    def test_what_is_there_is_opened_without_the_hub(self):
        self.expect_pull()
        self.hub.close()
        for name in ("hf:org/repo:Q8_0", "hf:org/repo"):
            result = self.puller.run("inspect", name)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("family: llama", result.stdout)

    def test_a_model_by_name_is_fetched_where_it_is_missing(self):
        result = self.puller.run("inspect", "hf:org/repo:Q8_0")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("family: llama", result.stdout)

    def test_the_token_is_for_the_hub_alone(self):
        (pathlib.Path(self.folder.name) / "token").write_text("hf_secret\n")
        self.expect_pull()
        self.assertTrue(all(entry[3].get("authorization") == "Bearer hf_secret" for entry in self.hub.asked("hub")))
        self.assertTrue(self.hub.asked("storage"))
        self.assertFalse([entry for entry in self.hub.asked("storage") if "authorization" in entry[3]])

    def test_a_repository_that_moved_is_followed(self):
        self.puller.endpoint += "/moved"
        self.expect_pull()

    def test_refusals_say_what_to_do(self):
        self.hub.status = (401, {})
        self.expect_refusal(["HF_TOKEN", "check the spelling"])
        self.expect_refusal(["does not take the token"], HF_TOKEN="hf_old")
        self.hub.status = (403, {"X-Error-Code": "GatedRepo"})
        self.expect_refusal(["/org/repo", "accept"])
        self.hub.status = (404, {"X-Error-Code": "RepoNotFound"})
        self.expect_refusal(["there is no such model", "127.0.0.1"])
        self.hub.status = None
        self.expect_refusal(["no revision 'v9'"], "org/repo@v9:Q8_0")
        self.expect_refusal(["does not name a model"], "../../etc")
        self.expect_refusal(["HF_HUB_OFFLINE"], HF_HUB_OFFLINE="1")

    def test_one_that_cannot_be_chosen_names_the_choices_and_what_fits(self):
        said = self.expect_refusal(["say which one", "Q8_0, Q4_0"], NAME)
        self.assertRegex(said, r"Q8_0 +\d.* fits, context of \d+ tokens, at most \S+ tokens/s")
        self.assertIn("The largest that fits here: org/repo:Q4_0", said)
        self.expect_refusal(["no 'Q6_K'", "Q8_0, Q4_0"], NAME + ":Q6_K")

    def test_a_model_that_does_not_fit_is_not_fetched(self):
        self.repo.lies["m-Q8_0.gguf"] = (1 << 49, "0" * 64)
        self.repo.lies["m-Q4_0.gguf"] = (1 << 49, "0" * 64)
        result = self.puller.pull(NAME + ":Q8_0", "--anyway")  # the disk has no room for it either
        self.assertIn("make room", result.stderr.splitlines()[-1])
        self.assertFalse(self.bodies())

    def test_a_family_that_is_not_known_is_refused_before_its_weights(self):
        self.repo.files = {"config.json": b'{"model_type": "strange_new"}', "model.safetensors": b"x" * 1000,
                           "tokenizer.json": b"{}"}
        self.expect_refusal(["Reprise cannot run it", "strange_new"], NAME)
        self.assertFalse(self.bodies())

    def test_a_cut_download_continues_where_it_ended(self):
        faults = iter(["none", "cut"])  # the look at its head, then the file
        self.hub.fault = lambda kind, path: next(faults, "none") if kind == "file" and self.at_storage() else "none"
        self.expect_pull()
        first, second = self.bodies()
        self.assertNotIn("range", first[3])
        self.assertRegex(second[3]["range"], r"bytes=[1-9]\d*-$")

    def at_storage(self):
        return self.hub.log[-1][0] == "storage"

    def test_the_hubs_wish_to_wait_is_kept(self):
        faults = iter(["429"])
        self.hub.fault = lambda kind, path: next(faults, "none")
        self.hub.retry_after = 1
        self.assertIn("(too many requests); trying again in 1.0 s", self.expect_pull()[1])
        faults = iter(["429"])
        self.hub.retry_after = 4000
        self.expect_refusal(["asks to wait 4000 s"])

    def test_what_is_damaged_twice_is_absent(self):
        self.hub.fault = lambda kind, path: "corrupt" if kind == "file" and self.at_storage() else "none"
        self.expect_refusal(["checksum"])
        self.assertEqual(self.puller.check_sound(NAME, self.repo), 0)
        self.assertFalse((self.puller.repo(NAME) / "refs/main").exists())
        self.hub.fault = lambda kind, path: "none"
        self.expect_pull()

    def test_two_processes_download_once(self):
        self.hub.piece_pause = 0.05
        two = [self.puller.start("pull", NAME + ":Q8_0") for _ in range(2)]
        said = ""
        for process in two:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
            said += err
        self.assertIn("another process fetches m-Q8_0.gguf; waiting for it", said)
        self.assertEqual(len(self.bodies()), 1)

    def test_interrupted_it_leaves_what_has_come(self):
        self.hub.piece_pause = 0.1
        process = self.puller.start("pull", NAME + ":Q8_0")
        part = self.puller.repo(NAME) / "blobs" / (hub_server.sha256(self.gguf) + ".incomplete")
        while not (part.exists() and part.stat().st_size > 0):
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        self.assertIn("the partial download is kept", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 1)
        self.assertGreater(part.stat().st_size, 0)
        self.assertIn("not finished", self.puller.run("models", "ls").stdout)
        self.hub.piece_pause = None
        self.expect_pull()
        self.assertRegex(self.bodies()[-1][3]["range"], r"bytes=[1-9]\d*-$")

    def test_a_folder_has_the_shards_that_its_index_names(self):
        golden = ROOT / "tests/golden/llama"
        weights = (golden / "model.safetensors").read_bytes()
        tensors = json.loads(weights[8:8 + int.from_bytes(weights[:8], "little")])
        index = {"weight_map": {name: "model-odd.safetensors" for name in tensors if name != "__metadata__"}}
        self.repo.files = {"config.json": (golden / "config.json").read_bytes(), "tokenizer.json": b"{}",
                           "model.safetensors.index.json": json.dumps(index).encode(),
                           "model-odd.safetensors": weights, "consolidated.safetensors": b"not wanted"}
        path, _ = self.expect_pull(NAME)
        self.assertEqual(path, self.puller.repo(NAME) / "snapshots" / self.repo.commit)
        self.assertEqual(self.puller.check_sound(NAME, self.repo), 4)
        self.assertEqual(self.puller.run("inspect", "hf:" + NAME).returncode, 0)
        del self.repo.files["model-odd.safetensors"]
        self.repo.commit = "2" * 40
        self.expect_refusal(["does not have model-odd.safetensors"], NAME)

    def test_a_mirror_that_lists_neither_sizes_nor_digests(self):
        self.repo.bare = True
        self.expect_pull()
        self.assertEqual(self.puller.check_sound(NAME, self.repo), 1)
        self.assertTrue(self.hub.asked("hub", "HEAD"))

    def test_a_blob_of_the_wrong_size_is_replaced(self):
        path, _ = self.expect_pull()
        blob = path.resolve()
        blob.write_bytes(b"cut by a full disk")
        self.expect_pull()
        self.assertEqual(self.puller.check_sound(NAME, self.repo), 1)

    def test_models_are_listed_verified_and_removed(self):
        self.expect_pull()
        path, _ = self.expect_pull(NAME + ":Q4_0")
        listed = self.puller.run("models", "ls").stdout
        self.assertRegex(listed, r"hf:org/repo:Q4_0 +\d")
        self.assertIn("2 models", listed)
        self.assertEqual(self.puller.run("models", "verify").returncode, 0)
        blob = path.resolve()
        data = blob.read_bytes()
        blob.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        damaged = self.puller.run("models", "verify", NAME)
        self.assertEqual(damaged.returncode, 1)
        self.assertIn(blob.name, damaged.stdout)
        self.assertEqual(self.puller.run("models", "rm", NAME + ":Q4_0").returncode, 0)
        self.assertFalse(blob.exists())
        self.assertIn("1 models", self.puller.run("models", "ls").stdout)
        self.assertEqual(self.puller.run("models", "rm", NAME).returncode, 0)
        self.assertFalse(self.puller.repo(NAME).exists())
        self.assertEqual(self.puller.run("models", "rm", NAME).returncode, 1)


class Transport(Hub):
    def make_certificate(self, name):
        folder = pathlib.Path(self.folder.name)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                        "-addext", f"subjectAltName={name}", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        return context, str(folder / "cert.pem")

    def tls_hub(self, name):
        context, authority = self.make_certificate(name)
        hub = self.start_hub(context)
        hub.repos = self.hub.repos
        self.hub = hub
        self.puller.endpoint = hub.endpoint
        return authority

    def test_certificates_are_checked(self):
        authority = self.tls_hub("IP:127.0.0.1")
        self.expect_refusal(["certificate of 127.0.0.1 cannot be trusted", "SSL_CERT_FILE"])
        self.assertFalse(self.hub.log)
        self.expect_pull(SSL_CERT_FILE=authority)
        self.assertEqual(self.puller.check_sound(NAME, self.repo), 1)

    def test_a_certificate_of_another_host_is_refused(self):
        authority = self.tls_hub("DNS:other.example")
        self.expect_refusal(["certificate of 127.0.0.1 cannot be trusted"], SSL_CERT_FILE=authority)
        self.assertFalse(self.hub.log)

    def start_proxy(self):
        proxy = hub_server.Proxy()
        self.addCleanup(proxy.close)
        return proxy

    def test_https_goes_through_a_tunnel_of_the_proxy(self):
        authority = self.tls_hub("IP:127.0.0.1")
        proxy = self.start_proxy()
        self.expect_pull(SSL_CERT_FILE=authority, HTTPS_PROXY=f"http://user:pass@{proxy.address}",
                         HTTP_PROXY="http://127.0.0.1:1", HF_TOKEN="hf_secret")
        self.assertTrue(all(line.startswith("CONNECT 127.0.0.1:") for line, _ in proxy.seen))
        self.assertEqual({credentials for _, credentials in proxy.seen}, {"Basic dXNlcjpwYXNz"})

    def test_http_goes_to_the_proxy_and_no_proxy_passes_it_by(self):
        proxy = self.start_proxy()
        self.expect_pull(http_proxy=proxy.address)
        self.assertTrue(proxy.seen and all(line.startswith("GET http://127.0.0.1:") for line, _ in proxy.seen))
        shutil.rmtree(self.puller.cache)
        proxy.seen.clear()
        self.expect_pull(http_proxy=proxy.address, no_proxy="localhost, 127.0.0.1")
        self.assertFalse(proxy.seen)
        self.expect_refusal(["not supported"], all_proxy="socks5://127.0.0.1:1")


class Serving(Hub):
    def test_a_chat_with_a_model_by_name(self):
        self.repo.files["tiny-Q8_0.gguf"] = TINY.read_bytes()
        del self.repo.files["m-Q8_0.gguf"]
        result = self.puller.run("run", "hf:org/repo:Q8_0", "-p", "Once", "-n", "2", "--device", "cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        plain = self.puller.run("run", str(TINY), "-p", "Once", "-n", "2", "--device", "cpu")
        self.assertEqual(result.stdout, plain.stdout)

    def test_a_server_of_models_by_name(self):
        self.repo.files = {"tiny-Q8_0.gguf": TINY.read_bytes()}
        self.hub.repos["org/other"] = hub_server.Repo({"other-Q8_0.gguf": TINY.read_bytes()})
        config = pathlib.Path(self.folder.name) / "serve.toml"
        config.write_text('[models.first]\nmodel = "hf:org/repo:Q8_0"\n[models.second]\nmodel = "hf:org/other"\n')
        for words, names in ((["hf:org/repo:Q8_0"], ["tiny-Q8_0"]), (["--config", config], ["first", "second"])):
            with Serve(self.puller, *words) as server:
                self.assertIn("fits this machine", server.log())
                listed = [model["id"] for model in server.ask("GET", "/v1/models")[1]["data"]]
                self.assertEqual(listed, names)
                for name in names:
                    self.assertEqual(server.generate(name)[0], 200)
            shutil.rmtree(self.puller.cache / "models--org--repo")
        self.hub.repos = {}
        result = self.puller.run("serve", "hf:org/repo:Q8_0", "--port", "0")  # and nothing listens
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("there is no such model", result.stderr)

    def test_a_server_pulls_and_deletes_as_ollama_does(self):
        self.repo.files = {"tiny-Q8_0.gguf": TINY.read_bytes()}
        models = pathlib.Path(self.folder.name) / "models"
        models.mkdir()
        (models / "own.gguf").symlink_to(TINY)
        name = "hf.co/org/repo:Q8_0"
        with Serve(self.puller, "--models-dir", models) as server:
            self.assertEqual(server.generate(name)[0], 404)
            lines = server.lines("/api/pull", {"model": name})
            self.assertEqual(lines[0], {"status": "pulling manifest"})
            self.assertEqual(lines[-1], {"status": "success"})
            size = TINY.stat().st_size
            self.assertEqual({line["total"] for line in lines if "total" in line}, {size})
            self.assertEqual(max(line.get("completed", 0) for line in lines), size)
            for wanted in (name, "org/repo:Q8_0", "own", ""):
                status, answer = server.generate(wanted)
                self.assertEqual(status, 200, answer)
            self.assertIn("org/repo:Q8_0", [model["id"] for model in server.ask("GET", "/v1/models")[1]["data"]])
            self.assertEqual(server.ask("POST", "/api/pull", {"name": name, "stream": False}), (200, {"status": "success"}))
            self.assertEqual(self.puller.check_sound(NAME, self.repo), 1)
            # Several ask for one model at the same moment: all of them get it.
            self.hub.repos["org/both"] = hub_server.Repo({"both-Q8_0.gguf": TINY.read_bytes()})
            last = []
            both = [threading.Thread(target=lambda: last.append(server.lines("/api/pull", {"model": "org/both:Q8_0"})[-1]))
                    for _ in range(4)]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join()
            self.assertEqual(last, [{"status": "success"}] * 4)
            self.assertEqual(server.ask("DELETE", "/api/delete", {"model": "org/both:Q8_0"})[0], 200)
        # The next server finds it again, without the hub.
        with Serve(self.puller, "--models-dir", models, HF_ENDPOINT="http://127.0.0.1:1") as server:
            self.assertEqual(server.generate(name)[0], 200)
            self.assertEqual(server.ask("DELETE", "/api/delete", {"model": name})[0], 200)
            self.assertEqual(server.generate(name)[0], 404)
            self.assertEqual(server.generate("own")[0], 200)
            self.assertEqual(list((self.puller.repo(NAME) / "blobs").iterdir()), [])
            self.assertEqual([path.name for path in models.iterdir()], ["own.gguf"])
            self.assertEqual(server.ask("DELETE", "/api/delete", {"model": name})[0], 404)

    def test_a_server_pulls_and_deletes_as_llama_server_does(self):
        self.repo.files = {"tiny-Q8_0.gguf": TINY.read_bytes()}
        models = pathlib.Path(self.folder.name) / "models"
        models.mkdir()
        (models / "own.gguf").symlink_to(TINY)
        name = "org/repo:Q8_0"
        with Serve(self.puller, "--models-dir", models) as server:
            connection, events = server.start("GET", "/models/sse")
            for asked, last in ((name, "download_finished"), ("org/none:Q8_0", "download_failed")):
                self.assertEqual(server.ask("POST", "/models", {"model": asked}), (200, {"success": True}))
                seen = []
                while not seen or seen[-1]["event"] != last:
                    line = events.readline()
                    if line.startswith(b"data: ") and "event" in (event := json.loads(line[6:])):
                        seen.append(event)
                        self.assertEqual(event["model"], asked)
                if last == "download_finished":
                    sizes = [event["data"] for event in seen if event["event"] == "download_progress"]
                    size = TINY.stat().st_size
                    self.assertEqual(sizes[-1], {"done": size, "total": size})
                else:
                    self.assertIn("no such model", seen[-1]["data"]["error"])
            connection.close()
            self.assertEqual(server.generate(name)[0], 200)
            self.assertEqual(server.ask("DELETE", "/models?model=own")[0], 404)
            self.assertEqual(server.ask("DELETE", "/models?model=" + name), (200, {"success": True}))
            self.assertEqual(server.generate(name)[0], 404)
            self.assertEqual([path.name for path in models.iterdir()], ["own.gguf"])

    def test_what_a_server_does_not_pull_is_said(self):
        models = pathlib.Path(self.folder.name) / "models"
        models.mkdir()
        (models / "own.gguf").symlink_to(TINY)
        (models / "gone.hf").write_text("hf:org/gone:Q8_0\n")  # not in the cache: left out
        with Serve(self.puller, "--models-dir", models) as server:
            self.assertEqual(server.ask("POST", "/api/pull", {"model": "llama3"})[0], 400)
            self.assertEqual(server.ask("POST", "/api/pull", {"model": "../../etc/passwd"})[0], 400)
            self.assertEqual(server.ask("POST", "/api/pull", {})[0], 400)
            self.assertIn("error", server.lines("/api/pull", {"model": "org/none:Q8_0"})[-1])
            self.assertEqual(server.ask("POST", "/api/pull", {"model": "org/repo:Q6_K", "stream": False})[0], 404)
            self.assertEqual(server.ask("DELETE", "/api/delete", {"model": "own"})[0], 404)
            self.assertTrue(TINY.exists())
            # What has come of a pull whose client leaves stays.
            self.hub.piece_pause = 0.1
            server.leave("/api/pull", {"model": NAME + ":Q8_0"})
            part = self.puller.repo(NAME) / "blobs" / (hub_server.sha256(self.gguf) + ".incomplete")
            while "was not pulled" not in server.log() or not part.exists():
                time.sleep(0.05)
            self.assertGreater(part.stat().st_size, 0)
            self.hub.piece_pause = None
            self.assertEqual(server.lines("/api/pull", {"model": NAME + ":Q8_0"})[-1], {"status": "success"})
        with Serve(self.puller, str(TINY)) as server:
            self.assertEqual(server.ask("POST", "/api/pull", {"model": NAME})[0], 404)


if __name__ == "__main__":
    threading.excepthook = lambda args: None  # connections that a killed client leaves
    unittest.main()
