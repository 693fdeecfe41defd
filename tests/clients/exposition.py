"""Prometheus' text format, read strictly (parse), and what `promtool check metrics` asks of it (lint)."""
import math
import re
import unittest

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\"n])*)"(,|$)')
KINDS = ("counter", "gauge", "histogram", "summary", "untyped")

# promtool's tables: units, their prefixes, abbreviations.
BASE_UNITS = {
    "seconds": ("second", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks"),
    "meters": ("meter",), "volts": ("volt",), "amperes": ("ampere",), "joules": ("joule",), "grams": ("gram",),
    "celsius": ("kelvin", "kelvins", "fahrenheit", "rankine"), "bytes": ("byte", "bit", "bits"),
}
PREFIXES = ("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mibi", "giga",
            "gibi", "tera", "tebi", "peta", "pebi")
ABBREVIATIONS = ("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d")


class Family:
    """One metric: its head and its samples, (name, labels, value)."""

    def __init__(self, name):
        self.name = name
        self.help = None
        self.kind = None
        self.samples = []


def parse_labels(text):
    labels = {}
    at = 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, "labels: " + text
        name, value, comma = match.groups()
        assert name not in labels, "a label twice: " + text
        assert not comma or match.end() < len(text), "a comma behind the last label: " + text
        labels[name] = re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), value)
        at = match.end()
    return labels


def suffixes(kind):
    return {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}.get(kind, ("",))


def parse(text):
    """Families by name. Fails on whatever a strict reader would not take."""
    assert text.endswith("\n") and "\r" not in text
    families = {}
    current = None
    seen = set()
    for line in text[:-1].split("\n"):
        assert line == line.strip() and line, "space around a line: " + repr(line)
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE") and re.fullmatch(NAME, name), line
            if current is None or current.name != name:
                assert name not in families, "not in one piece: " + name
                current = families[name] = Family(name)
            assert not current.samples, "a head behind samples: " + line
            if word == "HELP":
                assert current.help is None and rest, line
                current.help = rest
            else:
                assert current.kind is None and rest in KINDS, line
                current.kind = rest
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name, labels, value = match.group(1), parse_labels(match.group(2) or ""), float(match.group(3))
        assert current and name in [current.name + end for end in suffixes(current.kind)], "out of its place: " + line
        series = (name, *sorted(labels.items()))
        assert series not in seen, "twice: " + line
        seen.add(series)
        current.samples.append((name, labels, value))
    for family in families.values():
        check_values(family)
    return families


def check_values(family):
    assert family.kind and family.samples, "no type or no samples: " + family.name
    for name, _, value in family.samples:
        assert family.kind == "gauge" or value >= 0, name
    if family.kind != "histogram":
        return
    groups = {}
    for name, labels, value in family.samples:
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        groups.setdefault(rest, []).append((name[len(family.name):], labels.get("le"), value))
    for rows in groups.values():
        buckets = [(float(le.replace("+Inf", "inf")), value) for end, le, value in rows if end == "_bucket"]
        assert buckets == sorted(buckets) and len({bound for bound, _ in buckets}) == len(buckets), family.name
        assert [value for _, value in buckets] == sorted(value for _, value in buckets), "not cumulative: " + family.name
        assert buckets[-1][0] == math.inf, "no +Inf: " + family.name
        others = {end: value for end, _, value in rows if end != "_bucket"}
        assert set(others) == {"_sum", "_count"}, "incomplete: " + family.name
        assert others["_count"] == buckets[-1][1], "count is not the last bucket: " + family.name


def lint(families):
    """What promtool would object to, as (name, problem)."""
    problems = []
    for family in families.values():
        name, kind = family.name, family.kind
        words = name.lower().split("_")

        def say(problem):
            problems.append((family.name, problem))

        if not family.help:
            say("no help text")
        if (kind == "counter") != name.endswith("_total"):
            say("counters, and only they, end in _total")
        if ":" in name:
            say("contains ':'")
        if kind not in ("histogram", "summary"):
            if name.endswith(("_count", "_sum")):
                say("the suffix is reserved for histograms and summaries")
        if kind != "histogram" and (name.endswith("_bucket") or any("le" in labels for _, labels, _ in family.samples)):
            say("_bucket and le are reserved for histograms")
        if any("quantile" in labels for _, labels, _ in family.samples) and kind != "summary":
            say("quantile is reserved for summaries")
        if any(word in KINDS for word in words):
            say("the type is in the name")
        for text in [name] + [label for _, labels, _ in family.samples for label in labels]:
            if re.search(r"[a-z][A-Z]", text):
                say("camelCase: " + text)
        if any(word in ABBREVIATIONS for word in words):
            say("an abbreviated unit")
        for word in words:
            for base, others in BASE_UNITS.items():
                scaled = [prefix + unit for prefix in PREFIXES for unit in (base, *others)]
                if word in others or word in scaled:
                    say(f"{base} instead of {word}")
    return problems


class Rules(unittest.TestCase):
    """The rules above find what they are for."""

    GOOD = "# HELP a_total x\n# TYPE a_total counter\na_total{l=\"q\\\"\"} 1\n"

    def test_good(self):
        families = parse(self.GOOD)
        self.assertEqual(families["a_total"].samples, [("a_total", {"l": 'q"'}, 1.0)])
        self.assertEqual(lint(families), [])

    def test_not_the_format(self):
        histogram = "# HELP h x\n# TYPE h histogram\n"
        for text in (self.GOOD[:-1], self.GOOD + self.GOOD, self.GOOD + "a_total{l=\"q\\\"\"} 1\n",
                     self.GOOD.replace(" 1", " one"), self.GOOD.replace("counter", "count"), "b 1\n", "# TYPE b gauge\n",
                     self.GOOD.replace("l=", "l-x="), histogram + 'h_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
                     histogram + 'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
                     histogram + 'h_bucket{le="+Inf"} 1\nh_sum 1\nh_count 2\n',
                     histogram + 'h_bucket{le="+Inf"} 1\nh_count 1\n'):
            with self.assertRaises((AssertionError, ValueError), msg=text):
                parse(text)

    def test_not_clean(self):
        cases = {"a": "counter", "a_total": "gauge", "a:b": "gauge", "a_count": "gauge", "a_bucket": "gauge",
                 "a_gauge": "gauge", "aB": "gauge", "a_ms": "gauge", "a_milliseconds": "gauge", "a_minutes": "gauge",
                 "a_kilobytes": "gauge"}
        for name, kind in cases.items():
            self.assertTrue(lint(parse(f"# HELP {name} x\n# TYPE {name} {kind}\n{name} 1\n")), name)
        self.assertTrue(lint(parse("# TYPE a gauge\na 1\n")))
