"""HTTP/2 by a proxy: streams of many requests over one connection, event by event.

usage: http2_test.py REPRISE

Runs behind HAProxy with the line that docs/scale/haproxy.cfg has for it; is skipped where HAProxy or a curl that speaks HTTP/2 is missing.
"""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import harness

PROGRAM = sys.argv.pop(1)
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
CURL = shutil.which("curl")
STREAMS = 8


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def curl_speaks_http2():
    return CURL and "HTTP2" in subprocess.run([CURL, "--version"], capture_output=True, text=True).stdout


def proxy_config(port, server, certificate):
    text = (harness.ROOT / "docs/scale/haproxy.cfg").read_text()
    line = re.search(r"# (bind :443 .*)", text).group(1)
    line = line.replace(":443", f"127.0.0.1:{port}").replace("/etc/haproxy/reprise.pem", str(certificate))
    return text.split("  # workers")[0].replace("bind :8000", line) + f"  server r0 127.0.0.1:{server}\n"


@unittest.skipUnless(HAPROXY and curl_speaks_http2(), "haproxy or a curl with HTTP/2 is not installed")
class Http2(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
        certificate = folder / "both.pem"
        certificate.write_text((folder / "cert").read_text() + (folder / "key").read_text())
        self.server = harness.Server(PROGRAM, "--threads", "1", model=harness.TINY)
        self.addCleanup(self.server.stop)
        self.port = free_port()
        config = folder / "haproxy.cfg"
        config.write_text(proxy_config(self.port, self.server.port, certificate))
        proxy = subprocess.Popen([HAPROXY, "-f", config])
        self.addCleanup(proxy.wait, timeout=60)
        self.addCleanup(proxy.terminate)
        while True:
            self.assertIsNone(proxy.poll(), "haproxy ended")
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)

    def test_streams_share_a_connection(self):
        body = json.dumps({"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 8, "stream": True})
        one = ["--data", body, "--header", "content-type: application/json", "--insecure", "--no-buffer",
               "--write-out", "\n%{http_version} %{num_connects} %{response_code}\n", f"https://127.0.0.1:{self.port}/v1/chat/completions"]
        words = [CURL, "--silent", "--show-error", "--parallel", "--parallel-max", str(STREAMS)]
        for i in range(STREAMS):
            words += (["--next"] if i > 0 else []) + one
        ended = subprocess.run(words, capture_output=True, text=True, timeout=100)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        reports = [line.split() for line in re.findall(r"^\d\S* \d+ \d+$", ended.stdout, re.M)]
        self.assertEqual([(version, code) for version, _, code in reports], [("2", "200")] * STREAMS)
        self.assertEqual(sum(int(connects) for _, connects, _ in reports), 1)
        self.assertEqual(ended.stdout.count("data: [DONE]"), STREAMS)

    def test_events_are_handed_on_as_they_come(self):
        body = json.dumps({"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True})
        curl = subprocess.Popen([CURL, "--silent", "--insecure", "--no-buffer", "--http2", "--data", body, "--header", "content-type: application/json",
                                 f"https://127.0.0.1:{self.port}/v1/completions"], stdout=subprocess.PIPE, text=True)
        try:
            self.assertTrue(curl.stdout.readline().startswith("data: {"))
            # The reply is still on its way when its first event is here.
            with harness.urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}/v1/cache", timeout=60) as answer:
                self.assertEqual(json.load(answer)["server"]["requests"]["running"], 1)
        finally:
            curl.kill()
            curl.communicate()


if __name__ == "__main__":
    unittest.main()
