"""Runs `reprise` with a hub and a cache of its own: what the tests of the hub share."""
import os
import pathlib
import subprocess

import hub_server

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models/reprise-tiny-q8_0.gguf"


class Puller:
    def __init__(self, program, home, endpoint):
        self.program, self.home, self.endpoint = program, pathlib.Path(home), endpoint
        self.cache = self.home / "hub"

    def environment(self, **more):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith(("REPRISE_", "HF_", "HUGGING")) and not k.lower().endswith("_proxy")}
        environment |= {"HF_HOME": str(self.home), "HF_ENDPOINT": self.endpoint,
                        "REPRISE_RETRY_PAUSE_MS": "10", "HF_HUB_DOWNLOAD_TIMEOUT": "5"}
        return environment | more

    def start(self, *args, **more):
        return subprocess.Popen([self.program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**more))

    def run(self, *args, **more):
        return subprocess.run([self.program, *args], capture_output=True, text=True, timeout=120,
                              env=self.environment(**more))

    def pull(self, name, *args, **more):
        return self.run("pull", name, *args, **more)

    def repo(self, name):
        return self.cache / ("models--" + name.replace("/", "--"))

    def check_sound(self, name, repo):
        """What has the name of a blob has its digest; what a snapshot links to is the file. Returns how many."""
        count = 0
        for blob in (self.repo(name) / "blobs").glob("*"):
            if blob.name.endswith(".incomplete"):
                continue
            data = blob.read_bytes()
            digest = hub_server.sha256(data) if len(blob.name) == 64 else hub_server.git_sha1(data)
            assert digest == blob.name, f"{blob} is not sound"
        root = self.repo(name) / "snapshots" / repo.commit
        for link in root.rglob("*"):
            if link.is_dir():
                continue
            assert link.is_symlink() and not os.path.isabs(os.readlink(link)), link
            assert link.read_bytes() == repo.files[str(link.relative_to(root))], link
            count += 1
        return count
