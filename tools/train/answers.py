"""Asks the prompts of prompts.json with `reprise run`, three seeds each, and keeps every reply.

    python3 tools/train/answers.py --reprise build/release/reprise --model models/reprise-tiny-q8_0.gguf --out answers.json

One conversation is one process: its turns are typed one after the other, so later turns go through the cache.
"""
import argparse
import json
import os

from chat import Chat


def converse(args, prompt, seed):
    """(reply, whether it ended by itself, statistics) for each turn."""
    system = ["--system", prompt["system"]] if "system" in prompt else []
    chat = Chat(args.reprise, 400, "-m", args.model, "--seed", str(seed), "-t", "0.7", "--top-p", "0.9", "--threads",
                str(args.threads), *system)
    replies = [chat.ask(text) for text in prompt["turns"]]
    chat.close()
    return [(reply.strip(), ended, statistics) for reply, ended, statistics in replies]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reprise", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", default=os.path.join(os.path.dirname(__file__), "prompts.json"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    answers = []
    for prompt in json.load(open(args.prompts, encoding="utf-8")):
        for seed in range(1, args.seeds + 1):
            answers.append({**prompt, "seed": seed, "replies": converse(args, prompt, seed)})
        print(f"{len(answers)} conversations", flush=True)
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(answers, f, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
