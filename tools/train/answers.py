"""Asks the prompts of prompts.json over HTTP, three seeds each, with the model's own sampling, and keeps every reply.

    reprise serve --port 8080 & python3 tools/train/answers.py --port 8080 --out answers.json

A prompt may have a system prompt, several turns, a thought before the reply (`think`) or a tool's result after the question
(`tool`). The seed is all that a request says about sampling: the rest is what the model file says. With --against the
replies are compared with those of an earlier run: they must be the same.
"""
import argparse
import json
import os
import urllib.request

MAX_TOKENS = 500


def post(port, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def converse(port, prompt, seed):
    """[{reply, thought, ended, tokens, reused}] for each turn."""
    messages = [{"role": "system", "content": prompt["system"]}] if "system" in prompt else []
    replies = []
    for text in prompt["turns"]:
        messages.append({"role": "user", "content": text})
        if "tool" in prompt:
            call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]},
                         {"role": "tool", "tool_call_id": "call_1", "content": prompt["tool"]}]
        body = {"messages": messages, "seed": seed, "max_tokens": MAX_TOKENS}
        if prompt.get("think"):
            body["chat_template_kwargs"] = {"enable_thinking": True}
        answer = post(port, body)
        choice, usage = answer["choices"][0], answer["usage"]
        message = choice["message"]
        replies.append({"reply": message["content"].strip(), "ended": choice["finish_reason"] == "stop",
                        "tokens": usage["completion_tokens"]})
        if message.get("reasoning_content"):
            replies[-1]["thought"] = message["reasoning_content"].strip()
        messages.append({"role": "assistant", "content": message["content"]})
    return replies


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--prompts", default=os.path.join(os.path.dirname(__file__), "prompts.json"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--against", help="answers of an earlier run")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    answers = []
    for prompt in json.load(open(args.prompts, encoding="utf-8")):
        for seed in range(1, args.seeds + 1):
            answers.append({**prompt, "seed": seed, "replies": converse(args.port, prompt, seed)})
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump(answers, f, ensure_ascii=False, indent=1)
    print(f"{len(answers)} conversations")
    if args.against and json.load(open(args.against, encoding="utf-8")) != answers:
        raise SystemExit("the replies differ")


if __name__ == "__main__":
    main()
