"""What a model still finds, and how likely its texts go on, when K/V of the prompt is left out: SnapKV beside a window and first tokens.

    python3 tools/quality/evaluate.py --probe build/dev/tests/snapkv_quality --model retriever/ --out figures/ [--device cpu]

Reads the held-out texts that train_retriever.py wrote beside the model; writes results.json, a table and snapkv.svg.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess

KINDS = {"passkey": "one needle", "needle": "one of eight needles", "needles": "four of eight needles", "books": "books go on"}
COLOURS = {"snapkv": "#1f6feb", "window": "#d1481f"}
NAMES = {"snapkv": "SnapKV", "window": "first 4 + last tokens"}


def read_ids(path, name):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    begin, end = json.loads(raw[8:8 + size])[name]["data_offsets"]
    return list(struct.unpack(f"<{(end - begin) // 4}i", raw[8 + size + begin:8 + size + end]))


def measure(args, kind):
    path = args.model / f"{kind}.safetensors"
    prompt, answers, places = read_ids(path, "prompt")[0], read_ids(path, "answers")[0], read_ids(path, "places")
    budgets = [math.ceil(prompt / d) for d in args.parts if math.ceil(prompt / d) >= 4 + args.window]
    command = [args.probe, args.model, path, args.count, args.window, args.device, *budgets]
    result = json.loads(subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout)
    each = len(places) // answers
    for run in result["runs"]:
        right = asked = nats = tokens = 0
        for logprob, first in zip(run.pop("logprob"), run.pop("first")):
            for i in range(answers):
                right += all(first[p - prompt] for p in places[i * each:(i + 1) * each])
                asked += 1
            nats -= sum(logprob[1:])  # the first token follows all of the prompt in every run
            tokens += len(logprob) - 1
        run |= {"found": right / asked, "asked": asked, "perplexity": math.exp(nats / tokens), "tokens": tokens}
    return {"kind": kind, "prompt": prompt, "runs": result["runs"]}


def line(points, colour):
    path = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'


def panel(result, left):
    """One plot, 210 wide: what is kept, from little to all, against what is found or the perplexity."""
    key = "perplexity" if result["kind"] == "books" else "found"
    values = [run[key] for run in result["runs"]]
    low, high = (0, 1) if key == "found" else (min(values) * 0.98, max(values) * 1.02)
    shares = sorted({run["budget"] / result["prompt"] for run in result["runs"] if run["keeps"] != "exact"})
    x = lambda share: left + 50 + 140 * (math.log2(share) - math.log2(shares[0])) / max(1e-9, -math.log2(shares[0]))
    y = lambda value: 190 - 150 * (value - low) / (high - low)
    out = [f'<text x="{left + 115}" y="22" text-anchor="middle" font-weight="bold">{KINDS[result["kind"]]}</text>',
           f'<path d="M{left + 40} 40V190H{left + 195}" fill="none" stroke="#888"/>']
    for i in range(5):
        value = low + (high - low) * i / 4
        text = f"{100 * value:.0f} %" if key == "found" else f"{value:.1f}"
        out.append(f'<text x="{left + 36}" y="{y(value) + 4:.1f}" text-anchor="end">{text}</text>')
    for share in shares:
        out.append(f'<text x="{x(share):.1f}" y="206" text-anchor="middle">1/{round(1 / share)}</text>')
    exact = next(run for run in result["runs"] if run["keeps"] == "exact")
    out.append(f'<path d="M{left + 40} {y(exact[key]):.1f}H{left + 195}" stroke="#555" stroke-dasharray="4 3"/>')
    for keeps, colour in COLOURS.items():
        points = sorted((x(run["budget"] / result["prompt"]), y(run[key])) for run in result["runs"] if run["keeps"] == keeps)
        out.append(line(points, colour))
    return "".join(out)


def draw(results):
    width = 210 * len(results) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 250" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="250" fill="white"/>']
    out += [panel(result, 210 * i) for i, result in enumerate(results)]
    for i, (keeps, colour) in enumerate(COLOURS.items()):
        out.append(f'<rect x="{40 + 110 * i}" y="228" width="10" height="10" fill="{colour}"/>'
                   f'<text x="{55 + 110 * i}" y="237">{NAMES[keeps]}</text>')
    out.append(f'<path d="M{310} 233h24" stroke="#555" stroke-dasharray="4 3"/><text x="340" y="237">all of the prompt</text>'
               f'<text x="{width - 15}" y="237" text-anchor="end">left to right: share of the prompt that is kept</text></svg>')
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--probe", required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--count", type=int, default=100, help="texts of each kind")
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parts", type=int, nargs="+", default=[16, 8, 4, 2], help="a budget is the prompt divided by one of these")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results = []
    for kind in KINDS:
        result = measure(args, kind)
        results.append(result)
        for run in result["runs"]:
            print(f"{KINDS[kind]}: prompt {result['prompt']}, {run['keeps']} {run['budget']}: found {100 * run['found']:.1f} % of {run['asked']}, "
                  f"perplexity {run['perplexity']:.3f}", flush=True)
        (args.out / "results.json").write_text(json.dumps(results, indent=1))
    (args.out / "snapkv.svg").write_text(draw(results))


if __name__ == "__main__":
    main()
