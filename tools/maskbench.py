"""MaskBench: JSON schemas with valid and invalid instances, run through the grammar engine.

    tools/maskbench.py PROBE TOKENIZER DATA [--sample N] [--seed S] [--engines A,B] [--failures FILE] [--jobs N]
                       [--part K/N --kept FILE]

PROBE is the program grammar_probe, TOKENIZER a tokenizer.json, DATA the folder maskbench/data of
github.com/guidance-ai/jsonschemabench. Prints one table: schemas compiled and refused, valid
instances refused, invalid ones accepted, processor time to compile and per mask. Engines are reprise, llguidance and
xgrammar (pip: llguidance, xgrammar, numpy, tokenizers); the wheels run in Python, on one thread.

Instances are written as Python's json.dumps writes them. The text is cut into tokens, a mask is made
before each, and the token must be in it. A valid instance that is refused is tried again with the
properties of its objects in the order in which the schema names them (which is how they are written);
those that pass then are counted apart. A long run can be done in parts: --part 2/8 takes the second of every
eight schemas, and --kept adds what is measured to a file, so that the last table is that of all parts.
"""
import argparse
import collections
import concurrent.futures
import glob
import json
import os
import pickle
import random
import re
import subprocess
import sys
import time
import urllib.parse


def load(folder, sample, seed, part, parts):
    files = sorted(glob.glob(os.path.join(folder, "*.json")))
    if sample:
        files = sorted(random.Random(seed).sample(files, min(sample, len(files))))
    for file in files[part - 1::parts]:
        with open(file, encoding="utf-8") as handle:
            yield os.path.basename(file), json.load(handle)


def text_of(value):
    return json.dumps(value, ensure_ascii=False)


class Order:
    """Puts the properties of an instance into the order in which its schema names them: those of `properties`, as the
    document has them, then others that are `required`. Where schemas are combined, what fits the value comes first."""

    def __init__(self, root):
        self.root = root

    def target(self, reference):
        node = self.root
        for part in reference.lstrip("#").split("/")[1:]:
            part = urllib.parse.unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(part)] if isinstance(node, list) else node[part]
            except (KeyError, IndexError, ValueError, TypeError):
                return True
        return node if reference.startswith("#") else True

    def fits(self, node, value):
        """Whether the names, and the constants, of an object are what this schema asks for; a guess, to order by."""
        for one in self.all_of([node], value, deep=False):
            properties = one.get("properties") or {}
            required = one.get("required")
            if isinstance(required, list) and any(name not in value for name in required):
                return False
            if one.get("additionalProperties") is False and "patternProperties" not in one:
                if any(name not in properties for name in value):
                    return False
            for name, schema in properties.items():
                if name not in value or not isinstance(schema, dict):
                    continue
                if value[name] not in schema.get("enum", [value[name]]) or value[name] != schema.get("const", value[name]):
                    return False
        return True

    def all_of(self, nodes, value, deep=True):
        """The schemas that speak about this value, in the order of the document."""
        found, open_nodes = [], list(reversed(nodes))
        while open_nodes and len(found) < 1000:
            node = open_nodes.pop()
            if not isinstance(node, dict) or any(node is other for other in found):
                continue
            found.append(node)
            more = []
            for key, inner in node.items():
                if key == "$ref" and isinstance(inner, str):
                    more.append(self.target(inner))
                elif key == "allOf" and isinstance(inner, list):
                    more.extend(inner)
                elif deep and key in ("anyOf", "oneOf") and isinstance(inner, list):
                    if isinstance(value, dict):
                        inner = sorted(inner, key=lambda branch: not self.fits(branch, value))
                    more.extend(inner)
                elif deep and key in ("if", "then", "else", "not"):
                    more.append(inner)
                elif deep and key in ("dependencies", "dependentSchemas") and isinstance(inner, dict):
                    more.extend(inner.values())
            open_nodes.extend(reversed(more))
        return found

    def arrange(self, value, nodes):
        nodes = self.all_of(nodes, value)
        if isinstance(value, list):
            return [self.arrange(item, [part for node in nodes for part in self.item_schemas(node, i)])
                    for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        names = {}
        for key in ("properties", "required"):
            for node in nodes:
                for name in node.get(key) if isinstance(node.get(key), (dict, list)) else ():
                    names.setdefault(name, len(names))
        inner = {name: [part for node in nodes for part in self.property_schemas(node, name)] for name in value}
        return {name: self.arrange(value[name], inner[name])
                for name in sorted(value, key=lambda name: names.get(name, 1 << 30))}

    @staticmethod
    def item_schemas(node, i):
        items = node.get("prefixItems", node.get("items"))
        if isinstance(items, list):
            return [items[i]] if i < len(items) else [node.get("items"), node.get("additionalItems")]
        return [items]

    @staticmethod
    def property_schemas(node, name):
        properties = node.get("properties")
        if isinstance(properties, dict) and name in properties:
            return [properties[name]]
        patterns = node.get("patternProperties")
        return [*(patterns.values() if isinstance(patterns, dict) else ()), node.get("additionalProperties")]


SLOW_US = 5000  # masks that take longer are noted with --failures
GIVE_UP_SECONDS = 20


class Tally:
    def __init__(self, name):
        self.name = name
        self.schemas = self.compiled = self.passed = self.valid_refused = self.invalid_accepted = 0
        self.problems = self.other_order = 0
        self.compile_us, self.masks_us, self.errors = [], [], collections.Counter()
        self.failures = []

    def add(self, file, tests, answer):
        self.schemas += 1
        if "error" in answer:
            self.errors[re.sub(r'"[^"]*"', '"..."', answer["error"])[:100]] += 1
            self.failures.append((file, "refused", answer["error"]))
            return
        self.compiled += 1
        self.compile_us.append(answer["compile_us"])
        self.masks_us.extend(answer["masks_us"])
        slowest = max(answer["masks_us"], default=0)
        if slowest > SLOW_US:
            self.failures.append((file, "slow", f"{slowest:.0f} us"))
        good = True
        if answer.get("problem"):
            self.problems += 1
            self.failures.append((file, "problem", answer["problem"]))
        reached = answer.get("reached") or [0] * len(tests)
        in_order = answer.get("passes_in_order") or [False] * len(tests)
        for test, accepted, end, passes_in_order in zip(tests, answer["tests"], reached, in_order):
            if accepted == test["valid"]:
                continue
            good = False
            if test["valid"] and passes_in_order:
                self.other_order += 1
                good = True
            elif test["valid"]:
                self.valid_refused += 1
                done = test["text"].encode()[:end].decode(errors="replace")
                self.failures.append((file, "valid refused", done[-150:] + " <HERE> " + test["text"][len(done):][:60]))
            else:
                self.invalid_accepted += 1
                self.failures.append((file, "invalid accepted", test["text"][:300]))
        self.passed += good

    def join(self, other):
        for name, value in vars(other).items():
            if name != "name":
                setattr(self, name, getattr(self, name) + value)

    def row(self):
        def at(values, share):
            return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")
        c, m = self.compile_us, self.masks_us
        return (f"| {self.name} | {self.schemas} | {self.compiled} | {self.passed} | {self.other_order} | {self.valid_refused} "
                f"| {self.invalid_accepted} | {at(c, .5) / 1e3:.2f} / {at(c, .99) / 1e3:.1f} / {at(c, 1) / 1e3:.0f} ms "
                f"| {at(m, .5):.0f} / {at(m, .99):.0f} / {at(m, 1):.0f} us | {len(m)} |")


HEAD = ("| engine | schemas | compiled | passed | other order | valid refused | invalid accepted | compile p50 / p99 / max "
        "| mask p50 / p99 / max | masks |\n|---|---|---|---|---|---|---|---|---|---|")


def reorder(probe, tokenizer, part, answers):
    """Notes which refused valid tests pass with their properties in the schema's order."""
    again = []
    for (_, schema, tests), answer in zip(part, answers):
        refused = [i for i, accepted in enumerate(answer.get("tests", [])) if tests[i]["valid"] and not accepted]
        if refused:
            again.append((refused, schema, tests, answer))
    lines = ""
    for refused, schema, tests, _ in again:
        values = [Order(schema).arrange(json.loads(tests[i]["text"]), [schema]) for i in refused]
        lines += json.dumps({"schema": schema, "arrange": values}) + "\n"
    done = subprocess.run([probe, tokenizer], input=lines, capture_output=True, text=True, check=True)
    for (refused, _, tests, answer), line in zip(again, done.stdout.split("\n")):
        passing = {i for i, arranged in zip(refused, json.loads(line)["arranged"]) if arranged}
        answer["passes_in_order"] = [i in passing for i in range(len(tests))]


def run_probe(probe, tokenizer, work, jobs):
    def one(part):
        lines = "".join(json.dumps({"schema": schema, "tests": tests}) + "\n" for _, schema, tests in part)
        done = subprocess.run([probe, tokenizer, "masks"], input=lines, capture_output=True, text=True, check=False)
        answers = [json.loads(line) for line in done.stdout.split("\n") if line]
        if len(answers) < len(part):
            sys.exit(f"the probe died at {part[len(answers)][0]}: {done.stderr[-300:]}")
        reorder(probe, tokenizer, part, answers)
        return answers
    parts = [work[i::jobs] for i in range(jobs)]
    tally = Tally("reprise")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for part, answers in zip(parts, pool.map(one, parts)):
            for (file, _, tests), answer in zip(part, answers):
                tally.add(file, tests, answer)
    return tally


def judge(accepts, schema, tests, answer):
    """Asks an engine about each instance, and again in the schema's order about valid ones that it refuses."""
    answer["tests"] = [bool(accepts(test["text"])) for test in tests]
    answer["passes_in_order"] = [
        test["valid"] and not accepted and bool(accepts(text_of(Order(schema).arrange(json.loads(test["text"]), [schema]))))
        for test, accepted in zip(tests, answer["tests"])]


def run_llguidance(tokenizer_file, work):
    import llguidance
    import llguidance.numpy
    import tokenizers
    hf = tokenizers.Tokenizer.from_file(tokenizer_file)
    tokenizer = llguidance.LLTokenizer(open(tokenizer_file, encoding="utf-8").read())
    mask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    tally = Tally("llguidance")
    for file, schema, tests in work:
        start = time.process_time()
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
        compile_us = (time.process_time() - start) * 1e6
        if matcher.is_error():
            tally.add(file, tests, {"error": matcher.get_error().splitlines()[0]})
            continue
        answer = {"compile_us": compile_us, "masks_us": []}

        def accepts(text):
            now = matcher.deep_copy()
            for token in hf.encode(text, add_special_tokens=False).ids:
                start = time.process_time()
                llguidance.numpy.fill_next_token_bitmask(now, mask, 0)
                answer["masks_us"].append((time.process_time() - start) * 1e6)
                if not now.consume_token(token):
                    return False
            return now.is_accepting()

        judge(accepts, schema, tests, answer)
        tally.add(file, tests, answer)
    return tally


def answer_with_xgrammar(tokenizer_file, pipe):
    """A process of its own, as compilations cannot be interrupted: a schema and its texts in, an answer out."""
    import tokenizers
    import xgrammar
    hf = tokenizers.Tokenizer.from_file(tokenizer_file)
    size = hf.get_vocab_size()
    end = max(i for i in range(size) if hf.id_to_token(i) in ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", "<eos>"))
    info = xgrammar.TokenizerInfo([hf.id_to_token(i) or "" for i in range(size)], vocab_type=xgrammar.VocabType.BYTE_LEVEL,
                                  vocab_size=size, stop_token_ids=[end])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    mask = xgrammar.allocate_token_bitmask(1, size)
    pipe.send("ready")
    while True:
        schema, tests = pipe.recv()
        start = time.process_time()
        try:
            compiled = compiler.compile_json_schema(json.dumps(schema), strict_mode=False)
        except Exception as error:
            pipe.send({"error": str(error).splitlines()[-1]})
            continue
        answer = {"compile_us": (time.process_time() - start) * 1e6, "masks_us": []}

        def accepts(text):
            now = xgrammar.GrammarMatcher(compiled)
            for token in hf.encode(text, add_special_tokens=False).ids:
                start = time.process_time()
                now.fill_next_token_bitmask(mask, 0)
                answer["masks_us"].append((time.process_time() - start) * 1e6)
                if not now.accept_token(token):
                    return False
            return now.accept_token(end)

        judge(accepts, schema, tests, answer)
        pipe.send(answer)


def run_xgrammar(tokenizer_file, work):
    import multiprocessing
    tally = Tally("xgrammar")
    process = None
    for file, schema, tests in work:
        if process is None:
            pipe, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=answer_with_xgrammar, args=(tokenizer_file, theirs), daemon=True)
            process.start()
            pipe.recv()
        pipe.send((schema, tests))
        if pipe.poll(GIVE_UP_SECONDS):
            tally.add(file, tests, pipe.recv())
        else:
            process.kill()
            process = None
            tally.add(file, tests, {"error": f"more than {GIVE_UP_SECONDS} s"})
    return tally


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("tokenizer")
    parser.add_argument("data")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--engines", default="reprise")
    parser.add_argument("--failures")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--kept")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    work = []
    for file, bench in load(options.data, options.sample, options.seed, part, parts):
        tests = [{"text": text_of(test["data"]), "valid": test["valid"]} for test in bench.get("tests", [])]
        work.append((file, bench["schema"], tests))
    engines = {"reprise": lambda: run_probe(options.probe, options.tokenizer, work, options.jobs),
               "llguidance": lambda: run_llguidance(options.tokenizer, work),
               "xgrammar": lambda: run_xgrammar(options.tokenizer, work)}
    tallies = [engines[name]() for name in options.engines.split(",")]
    if options.kept:
        if os.path.exists(options.kept):
            with open(options.kept, "rb") as kept:
                for tally, before in zip(tallies, pickle.load(kept), strict=True):
                    tally.join(before)
        with open(options.kept, "wb") as kept:
            pickle.dump(tallies, kept)
    print(HEAD)
    for tally in tallies:
        print(tally.row())
    for tally in tallies:
        print(f"\n{tally.name}: refused by name")
        for error, count in tally.errors.most_common(25):
            print(f"{count:6} {error}")
    if options.failures:
        with open(options.failures, "w", encoding="utf-8") as out:
            for tally in tallies:
                for failure in tally.failures:
                    out.write("\t".join((tally.name,) + failure) + "\n")


if __name__ == "__main__":
    main()
