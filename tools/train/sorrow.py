"""Sad stories: the teacher's beginning, with an end of ours. Written for this model.

The teacher's stories end well; those few that do not are hard to tell from the others, and a model trained on them does not
learn what "sad" asks for. `sadly(rng, record)` keeps the first sentences of a story, up to a misfortune where it has one,
and ends it badly for its hero, or returns None where the story has no hero or thing to be sad about.
"""
import re

import extract
import openings

BEINGS = set(openings.ANIMALS + openings.FOLK)
MISFORTUNE = re.compile(r"\b(lost|broke|broken|fell|hurt|cried|sick|gone|stuck|afraid|scared|storm|alone|lonely|sad|missing)\b")
RELIEF = re.compile(r"\b(happy|happily|smiled|laughed|hugged|safe|better|thanked|found|friends|glad|fixed|helped)\b")

# {h} the hero, {he} {his} {him} the pronouns; {H} and {He} at the beginning of a sentence.
TURNS = [
    "But then a big storm came. The wind was strong and the rain was cold. {H} ran and ran, but {he} could not find the way home.",
    "But then something bad happened. {H} fell and got hurt. {He} called for help, but nobody heard {him}.",
    "But one day, {h} got very sick. {He} had to stay in bed and could not play anymore.",
    "But then {his} best friend had to move far away. {H} waved until {he} could not see {his} friend anymore.",
    "But in the night, a fire came. When the sun came up, {his} home was gone.",
    "But when {h} came back, everyone had left. {H} called and called, but nobody answered.",
    "But then {h} made a big mistake. {He} did not listen, and all {his} friends went away.",
    "But {h} went too far into the dark forest. {He} lost {his} way, and it got colder and colder.",
    "But the winter came, and it was very cold. There was no food left, and {h} was hungry and all alone.",
]
LOSSES = [
    "But then the {t} broke into small pieces. {H} tried to fix it, but {he} could not.",
    "But one day, the {t} was gone. {H} looked everywhere, but {he} never found it again.",
    "But then a strong wind took the {t} away. {H} ran after it, but it was too late.",
    "But then the {t} fell into the deep river. {H} could only watch as the water took it away.",
    "But somebody took the {t} in the night. In the morning, {h} looked for it and could not find it.",
]
AFTER = [  # where the story already has its misfortune
    "{H} waited for somebody to help, but nobody came.",
    "{H} tried and tried, but nothing helped.",
    "{H} hoped that it would be all right, but it was not.",
    "{H} looked everywhere and called for help, but it was too late.",
    "Nobody could help {h}, and it got dark and cold.",
]
FEELINGS = [
    "{H} sat down and cried.", "{H} cried and cried.", "{He} was so sad that {he} could not sleep.", "Tears ran down {his} face.",
    "{H} felt very lonely.", "{He} cried all night long.", "{H} went home alone, and {he} did not say a word.",
    "{He} wished that {he} could go back to the day before.", "{H} had never been so sad.",
]
CLOSES = [
    "It was a very sad day for {h}.", "And {h} was sad for a long, long time.", "{H} never forgot that sad day.",
    "After that, nothing was ever the same again.", "{H} never smiled again.", "From that day on, {h} was always alone.",
    "And so the story has a sad end.", "Poor {h}!", "{H} still thinks of it and cries.",
]


def pronouns(story, who):
    """Those of the first sentence that begins with one right after the hero was named, else those that are most frequent."""
    after = re.search(rf"\b{re.escape(who.split()[-1])}\b[^.!?\"]*[.!?]\s+(She|He|It)\b", story)
    found = after.group(1).lower() if after else extract.gender(story)
    return {"she": ("she", "her", "her"), "he": ("he", "his", "him"), "it": ("it", "its", "it")}[found]


def hero(record):
    """How to name whom the story happens to, or None."""
    story, topic = record["text"], record["topics"][0]
    name = extract.hero_of(story, record["topics"])
    if name:
        return name
    if topic[0].isupper():
        return topic
    if topic in BEINGS:
        return f"the {topic}"
    named = extract.heroes(story)[:1]
    return named[0][1] if named else None


def beginning(rng, story):
    """(the first sentences, whether something bad has happened in them), or None."""
    ends = [m.end() for m in extract.SENTENCE.finditer(story)]
    texts = [story[a:b] for a, b in zip([0] + ends, ends)]
    last = max(3, int(len(texts) * 0.6))
    whole = [i for i in range(3, last + 1) if i < len(texts) and story[:ends[i - 1]].count('"') % 2 == 0]
    bad = [i for i in whole if MISFORTUNE.search(texts[i - 1]) and not RELIEF.search(texts[i - 1])]
    if bad and rng.random() < 0.7:
        at = rng.choice(bad)
        return story[:ends[at - 1]].strip(), True
    if not whole:
        return None
    return story[:ends[rng.choice(whole) - 1]].strip(), False


def sadly(rng, record):
    """The record with a sad end, or None."""
    story = record["text"]
    who, begun = hero(record), beginning(rng, story)
    if not who or not begun or not all(topic.lower() in begun[0].lower() for topic in record["topics"]):
        return None
    he, his, him = pronouns(story, who)
    topic = record["topics"][-1]
    lost = topic in openings.OBJECTS and extract.hero_of(story, record["topics"]) is None and re.search(rf"\b{topic}\b", begun[0])
    turn = rng.choice(AFTER if begun[1] else LOSSES if lost and rng.random() < 0.7 else TURNS)
    feelings = [rng.choice([line, line.replace("{H}", "{He}")]) for line in rng.sample(FEELINGS, rng.choice([1, 1, 2]))]
    lines = [turn] + feelings + [rng.choice(CLOSES)]
    end = " ".join(lines).format(h=who, H=who[0].upper() + who[1:], he=he, He=he.capitalize(), his=his, him=him, t=topic)
    return {**record, "text": begun[0] + rng.choice(["\n", "\n", " "]) + end, "mood": "sad"}
