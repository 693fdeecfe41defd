"""500 schemas, made by random_schemas.py, with valid and invalid instances: the engine's word against `jsonschema`'s.

    schema_sample_test.py PROBE TOKENIZER [COUNT]

No valid instance may be refused, no invalid one accepted, and at least 95 % of the schemas must compile, besides those that
nothing fulfils. Instances have their properties in the order of the schema, which is part of what is enforced.
"""
import collections
import json
import pathlib
import subprocess
import sys

import random_schemas

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import maskbench  # noqa: E402


def main():
    probe, tokenizer = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    work = list(random_schemas.sample(count, seed=1))
    lines = ""
    for schema, tests in work:
        order = maskbench.Order(schema)
        lines += json.dumps({"schema": schema, "arrange": [order.arrange(value, [schema]) for value, _ in tests]}) + "\n"
    done = subprocess.run([probe, tokenizer], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    refused = valid = invalid = wrong = 0
    reasons = collections.Counter()
    for (schema, tests), answer in zip(work, answers, strict=True):
        if "error" in answer:
            reasons[answer["error"]] += 1
            if not answer["error"].startswith("nothing can fulfil it"):
                refused += 1
            elif any(expected for _, expected in tests):
                wrong += 1
                print(f"fulfilled after all: {json.dumps(schema)}")
            continue
        for (value, expected), accepted in zip(tests, answer["arranged"], strict=True):
            valid += expected
            invalid += not expected
            if accepted != expected:
                wrong += 1
                print(f"{'valid, refused' if expected else 'invalid, accepted'}: {json.dumps(value)} by {json.dumps(schema)}")
    print(f"{count} schemas, {refused} refused by name; {valid} valid and {invalid} invalid instances, {wrong} judged wrong")
    for reason, times in reasons.most_common():
        print(f"{times:6} {reason}")
    sys.exit(wrong > 0 or refused * 20 > count or valid < 2 * count or invalid < count)


if __name__ == "__main__":
    main()
