"""Random schedules of faults between `reprise pull` and a hub: what arrives is right, or it is absent.

usage: fault_schedules.py REPRISE [COUNT] [FIRST_SEED]

A schedule is a repository with random files, and a fault (hub_server.FAULTS) drawn for every answer. Pulls run against
it, some ended by SIGKILL or SIGINT, some two at a time. After each: every blob has its digest, every link of a snapshot
leads to the right bytes, success means that all of it is there. The storage never sees the token. In the end the hub
is well, and the pull must succeed, whatever the faults have left behind.
"""
import concurrent.futures
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import hub_server
from puller import ROOT, Puller

TOKEN = "hf_secret_of_a_schedule"


def make_gguf(program, folder):
    path = pathlib.Path(folder) / "m.gguf"
    subprocess.run([program, "convert", ROOT / "tests/golden/llama", "--out", path], check=True, capture_output=True)
    return path.read_bytes()


def make_repo(rng, gguf):
    """A model that can be opened (its head is read before) and, as often as not, a folder."""
    if rng.random() < 0.6:
        files = {"README.md": b"# hello", "m-Q8_0.gguf": gguf, "m-Q4_0.gguf": b"GGUF of another", "mmproj-F16.gguf": b"x"}
        return hub_server.Repo(files), "Q8_0", ["m-Q8_0.gguf"]
    golden = ROOT / "tests/golden/llama"
    files = {name: (golden / name).read_bytes() for name in ("config.json", "model.safetensors")}
    files["tokenizer.json"] = rng.randbytes(rng.randrange(5000))
    files["extra.txt"] = b""
    return hub_server.Repo(files), "", list(files)


def run_schedule(program, seed, gguf):
    rng = random.Random(seed)
    hub = hub_server.HubServer()
    hub.rng = rng
    repo, wanted, paths = make_repo(rng, gguf)
    if rng.random() < 0.1:  # the list itself is wrong
        path = paths[0] if wanted else "model.safetensors"
        repo.lies[path] = rng.choice([(len(repo.files[path]) + rng.choice([-1, 1]), hub_server.sha256(repo.files[path])),
                                      (len(repo.files[path]), "0" * 64)])
    hub.repos["org/repo"] = repo
    share = rng.choice([0.1, 0.3, 0.6, 0.9])
    hub.fault = lambda kind, path: rng.choice(hub_server.FAULTS[kind]) if rng.random() < share else "none"
    outcome = "absent"
    try:
        with tempfile.TemporaryDirectory() as home:
            puller = Puller(program, home, hub.endpoint)
            name = "org/repo" + (":" + wanted if wanted else "")
            more = {"HF_TOKEN": TOKEN, "REPRISE_RETRIES": str(rng.randrange(6)), "REPRISE_RETRY_PAUSE_MS": "1"}
            for _ in range(rng.randrange(1, 4)):
                two = [puller.start("pull", name, **more) for _ in range(rng.choice([1, 1, 2]))]
                if rng.random() < 0.3:
                    try:
                        two[0].wait(timeout=rng.random() * 0.2)
                    except subprocess.TimeoutExpired:
                        os.kill(two[0].pid, rng.choice([signal.SIGKILL, signal.SIGINT]))
                for process in two:
                    out, err = process.communicate(timeout=120)
                    puller.check_sound("org/repo", repo)
                    assert process.returncode in (0, 1, -signal.SIGKILL, -signal.SIGINT), (seed, process.returncode, err)
                    if process.returncode == 0:
                        check_there(out, repo, wanted, paths)
                        outcome = "right"
                    elif process.returncode == 1:
                        assert err.splitlines()[-1].startswith("reprise: "), (seed, err)
            hub.fault = lambda kind, path: "none"
            lied, repo.lies = repo.lies, {}
            result = puller.pull(name, **more)
            assert result.returncode == 0, (seed, result.stderr)
            check_there(result.stdout, repo, wanted, paths)
            puller.check_sound("org/repo", repo)
            assert not (lied and outcome == "right"), (seed, "took what the list does not name")
            leaked = [entry for entry in hub.asked("storage") if "authorization" in entry[3]]
            assert not leaked, (seed, leaked)
            assert hub.asked("hub")[0][3]["authorization"] == "Bearer " + TOKEN
    finally:
        hub.close()
    return outcome


def check_there(out, repo, wanted, paths):
    path = pathlib.Path(out.strip())
    root = path.parent if wanted else path
    for name in paths:
        assert (root / name).read_bytes() == repo.files[name], name


def main():
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    outcomes = {"right": 0, "absent": 0}
    with tempfile.TemporaryDirectory() as folder:
        gguf = make_gguf(program, folder)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for outcome in pool.map(lambda seed: run_schedule(program, seed, gguf), range(first, first + count)):
                outcomes[outcome] += 1
    print(f"{count} schedules: {outcomes['right']} right under faults, {outcomes['absent']} absent until the hub was well")
    assert count < 20 or min(outcomes.values()) > 0, "the faults are too few or too many"


if __name__ == "__main__":
    main()
