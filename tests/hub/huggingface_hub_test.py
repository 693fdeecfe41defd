"""One cache for Reprise and for huggingface_hub: each uses what the other has written, and waits for its locks.

usage: huggingface_hub_test.py REPRISE, with an interpreter that has huggingface_hub
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import hub_server
from fault_schedules import make_gguf
from puller import ROOT, Puller

REPRISE = sys.argv.pop(1) if len(sys.argv) > 1 else "reprise"
NAME = "org/repo"

LIBRARY = """
import sys, huggingface_hub
kind, repo, file = sys.argv[1:4]
if kind == "file":
    print(huggingface_hub.hf_hub_download(repo, file))
elif kind == "local":
    print(huggingface_hub.hf_hub_download(repo, file, local_files_only=True))
elif kind == "folder":
    print(huggingface_hub.snapshot_download(repo, allow_patterns=file.split(",")))
elif kind == "scan":
    info = huggingface_hub.scan_cache_dir()
    print(len(info.warnings), [(r.repo_id, r.nb_files, sorted(v.refs)) for r in info.repos for v in [next(iter(r.revisions))]])
elif kind == "lock":
    from huggingface_hub.utils import WeakFileLock
    with WeakFileLock(file):
        print("locked", flush=True)
        sys.stdin.readline()
elif kind == "try":
    from filelock import FileLock, Timeout
    try:
        with FileLock(file, timeout=0):
            print("free")
    except Timeout:
        print("busy")
"""


class SharedCache(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore", ResourceWarning)
        self.folder = tempfile.TemporaryDirectory()
        self.hub = hub_server.HubServer()
        self.puller = Puller(REPRISE, self.folder.name, self.hub.endpoint)
        golden = ROOT / "tests/golden/llama"
        self.gguf = make_gguf(REPRISE, self.folder.name)
        self.repo = hub_server.Repo({"m-Q8_0.gguf": self.gguf, "sub/n-Q4_0.gguf": self.gguf + b"!"})
        self.hub.repos[NAME] = self.repo
        self.hub.repos["org/folder"] = hub_server.Repo(
            {name: (golden / name).read_bytes() for name in ("config.json", "model.safetensors")}
            | {"tokenizer.json": b"{}", "README.md": b"# hello"})

    def tearDown(self):
        self.hub.close()
        self.folder.cleanup()

    def by_library(self, kind, file, repo=NAME, **more):
        environment = self.puller.environment(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1",
                                              HF_HUB_DISABLE_UPDATE_CHECK="1", **more)
        return subprocess.run([sys.executable, "-c", LIBRARY, kind, repo, file], capture_output=True, text=True,
                              timeout=120, env=environment)

    def expect(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def lock(self):
        path = self.puller.cache / ".locks/models--org--repo" / (hub_server.sha256(self.gguf) + ".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def test_what_the_library_wrote_is_used_as_it_is(self):
        path = self.expect(self.by_library("file", "m-Q8_0.gguf"))
        self.expect(self.by_library("file", "sub/n-Q4_0.gguf"))
        self.expect(self.by_library("folder", "*", repo="org/folder"))
        before = self.snapshot()
        asked = len(self.hub.log)
        for name in ("hf:org/repo:Q8_0", "hf:org/repo:q4_0", "hf:org/folder"):
            shown = self.expect(self.puller.run("inspect", name, HF_HUB_OFFLINE="1"))
            self.assertIn("family: llama", shown)
        self.assertEqual(len(self.hub.log), asked)
        # A pull asks what there is, fetches nothing and changes nothing.
        self.assertEqual(self.expect(self.puller.pull(NAME + ":Q8_0")), path)
        self.expect(self.puller.pull("org/folder"))
        self.assertFalse([entry for entry in self.hub.log[asked:] if "/resolve/" in entry[2]])
        after = self.snapshot()
        self.assertEqual({k: v for k, v in before.items() if k in after}, before)
        self.assertFalse([name for name in set(after) - set(before) if ".locks" not in name and "CACHEDIR" not in name])
        listed = self.expect(self.puller.run("models", "ls"))
        for name in ("hf:org/folder ", "hf:org/repo:Q8_0", "hf:org/repo:Q4_0"):
            self.assertIn(name, listed)
        self.expect(self.puller.run("models", "verify"))

    def snapshot(self):
        return {str(p): (os.readlink(p) if p.is_symlink() else p.stat().st_mtime_ns)
                for p in self.puller.cache.rglob("*") if not p.is_dir()}

    def test_what_reprise_wrote_is_used_by_the_library(self):
        path = self.expect(self.puller.pull(NAME + ":Q8_0"))
        self.expect(self.puller.pull(NAME + ":Q4_0"))
        self.expect(self.puller.pull("org/folder"))
        self.assertEqual(self.expect(self.by_library("local", "m-Q8_0.gguf", HF_HUB_OFFLINE="1")), path)
        asked = len(self.hub.log)
        self.assertEqual(self.expect(self.by_library("file", "m-Q8_0.gguf")), path)
        folder = self.expect(self.by_library("folder", "config.json,model.safetensors,tokenizer.json", repo="org/folder"))
        self.assertEqual(pathlib.Path(folder), self.puller.repo("org/folder") / "snapshots" / self.repo.commit)
        self.assertFalse([entry for entry in self.hub.log[asked:] if entry[1] == "GET" and "/resolve/" in entry[2]])
        scanned = self.expect(self.by_library("scan", "-"))
        self.assertTrue(scanned.startswith("0 "), scanned)  # no warnings
        self.assertIn("('org/repo', 2, ['main'])", scanned)
        self.assertIn("('org/folder', 3, ['main'])", scanned)

    def test_reprise_waits_for_the_library(self):
        holder = subprocess.Popen([sys.executable, "-c", LIBRARY, "lock", NAME, self.lock()], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, env=self.puller.environment())
        self.assertEqual(holder.stdout.readline(), "locked\n")
        process = self.puller.start("pull", NAME + ":Q8_0")
        for line in process.stderr:
            if "another process fetches" in line:
                break
        self.assertIsNone(process.poll())
        holder.communicate("\n")
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)

    def test_the_library_waits_for_reprise(self):
        self.hub.piece_pause = 0.05
        process = self.puller.start("pull", NAME + ":Q8_0")
        part = self.puller.repo(NAME) / "blobs" / (hub_server.sha256(self.gguf) + ".incomplete")
        while not part.exists():
            self.assertIsNone(process.poll())
        self.assertEqual(self.expect(self.by_library("try", self.lock())), "busy")
        self.hub.piece_pause = None
        process.kill()
        process.communicate()
        self.assertEqual(self.expect(self.by_library("try", self.lock())), "free")
        # What a killed process has left is no obstacle to the library, nor the other way round.
        self.expect(self.by_library("file", "m-Q8_0.gguf"))
        self.expect(self.puller.pull(NAME + ":Q8_0"))
        self.assertEqual(self.puller.check_sound(NAME, self.repo), 1)


if __name__ == "__main__":
    unittest.main()
