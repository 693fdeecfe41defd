#!/usr/bin/env python3
"""Reprise beside llama.cpp on the same files: speed in one interleaved run, agreement of distributions."""
import argparse
import json
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import tempfile

PREFILL = (512, 2048)
DECODE = 64
AGREEMENT_TOKENS = 512


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def reprise_rates(program, model, threads):
    rates = {}
    for what, tokens in [("prefill", n) for n in PREFILL] + [("decode", DECODE)]:
        out = run([program, "bench", what, "--model", model, "-n", tokens, "--threads", threads,
                   "--repeat", 1, "--json"])
        rates[what, tokens] = json.loads(out)["tokens_per_second"]
    return rates


def llama_rates(program, model, threads):
    out = run([program, "-m", model, "-t", threads, "-r", 1, "-o", "json", "-n", DECODE,
               "-p", ",".join(map(str, PREFILL))])
    rates = {}
    for row in json.loads(out):
        tokens = row["n_prompt"] or row["n_gen"]
        rates["prefill" if row["n_prompt"] else "decode", tokens] = row["avg_ts"]
    return rates


def speed(args):
    bench = args.llama / "build/bin/llama-bench"
    print(f"threads {args.threads}, median of {args.rounds} interleaved rounds, tokens/s\n")
    print("| file | what | llama.cpp | Reprise | ratio |\n|---|---|---|---|---|")
    for model in args.models:
        ours, theirs = [], []
        for _ in range(args.rounds):
            theirs.append(llama_rates(bench, model, args.threads))
            ours.append(reprise_rates(args.reprise, model, args.threads))
        for key in ours[0]:
            a = statistics.median(r[key] for r in theirs)
            b = statistics.median(r[key] for r in ours)
            ratio = statistics.median(y[key] / x[key] for x, y in zip(theirs, ours))
            print(f"| {model.stem} | {key[0]} {key[1]} | {a:.1f} | {b:.1f} | {ratio:.2f} |", flush=True)


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run(command)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def cpu_time(args):
    """One thread each; what 3 repetitions take more than 1 has no loading in it."""
    bench = args.llama / "build/bin/llama-bench"
    print(f"1 thread, median of {args.rounds} interleaved rounds, tokens per second of CPU time\n")
    print("| file | what | llama.cpp | Reprise | ratio |\n|---|---|---|---|---|")
    for model in args.models:
        for what, tokens in [("prefill", n) for n in PREFILL] + [("decode", DECODE)]:
            def theirs(repeat):
                lengths = ["-p", tokens, "-n", 0] if what == "prefill" else ["-p", 0, "-n", tokens]
                return cpu_seconds([bench, "-m", model, "-t", 1, "-r", repeat, "--no-warmup", *lengths])

            def ours(repeat):
                return cpu_seconds([args.reprise, "bench", what, "--model", model, "-n", tokens, "--threads", 1,
                                    "--repeat", repeat, "--json"])
            rates = [[2 * tokens / (program(3) - program(1)) for program in (theirs, ours)]
                     for _ in range(args.rounds)]
            a, b = (statistics.median(column) for column in zip(*rates))
            ratio = statistics.median(y / x for x, y in rates)
            print(f"| {model.stem} | {what} {tokens} | {a:.1f} | {b:.1f} | {ratio:.2f} |", flush=True)


def read_logits(path):
    import numpy
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    entry = json.loads(raw[8:8 + size])["logits"]
    begin, end = entry["data_offsets"]
    return numpy.frombuffer(raw[8 + size + begin:8 + size + end], numpy.float32).reshape(entry["shape"])


def log_softmax(logits):
    import numpy
    logits = logits.astype(numpy.float64)
    logits = logits - logits.max(1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(1, keepdims=True))


def divergence(theirs, ours):
    import numpy
    p, q = log_softmax(theirs), log_softmax(ours)
    return (numpy.exp(p) * (p - q)).sum(1)


def build_dumper(llama, folder):
    libraries = sorted((llama / "build").rglob("*.a"))
    wanted = {"libllama.a": 0, "libggml.a": 1, "libggml-cpu.a": 2, "libggml-base.a": 3}
    libraries = sorted((p for p in libraries if p.name in wanted), key=lambda p: wanted[p.name])
    program = folder / "llama_logits"
    run(["g++", "-O2", "-std=c++17", f"-I{llama}/include", f"-I{llama}/ggml/include",
         pathlib.Path(__file__).with_name("logits.cc"), "-o", program, *libraries, "-fopenmp", "-lpthread", "-ldl"])
    return program


def agreement(args):
    import numpy
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        dumper = build_dumper(args.llama, folder)
        # Below 256: the ids that every vocabulary of `reprise synth` has.
        tokens = numpy.random.default_rng(1).integers(0, 256, AGREEMENT_TOKENS, dtype=numpy.int32)
        (folder / "tokens.bin").write_bytes(tokens.tobytes())
        header = json.dumps({"tokens": {"dtype": "I32", "shape": [len(tokens)],
                                        "data_offsets": [0, tokens.nbytes]}}).encode()
        (folder / "tokens.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + tokens.tobytes())
        print("| file | mean KL | largest KL | same first choice | deviation of logits |\n|---|---|---|---|---|")
        for model in args.models:
            run([args.reprise, "logits", "--model", model, "--input", folder / "tokens.safetensors",
                 "--out", folder / "ours", "--threads", args.threads])
            run([dumper, model, folder / "tokens.bin", folder / "theirs", args.threads])
            ours = read_logits(folder / "ours")
            theirs = numpy.fromfile(folder / "theirs", numpy.float32).reshape(ours.shape)
            kl = numpy.concatenate([divergence(theirs[i:i + 32], ours[i:i + 32])
                                    for i in range(0, len(ours), 32)])
            same = (ours.argmax(1) == theirs.argmax(1)).mean()
            print(f"| {model.stem} | {kl.mean():.2e} | {kl.max():.2e} | {100 * same:.1f} % | "
                  f"{ours.std():.2f} |", flush=True)


COMMANDS = {"speed": speed, "cpu_time": cpu_time, "agreement": agreement}


def add_options(parser):
    parser.add_argument("--reprise", type=pathlib.Path, default=pathlib.Path("build/release/reprise"))
    parser.add_argument("--llama", type=pathlib.Path, required=True, help="checkout of llama.cpp, built in build/")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=list(COMMANDS))
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    add_options(parser)
    args = parser.parse_args()
    args.reprise = args.reprise.resolve()  # a bare name would be looked for in PATH
    COMMANDS[args.what](args)


if __name__ == "__main__":
    main()
