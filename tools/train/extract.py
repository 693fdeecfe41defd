"""Reads a simple story and finds what can be asked about it, with regular expressions alone.

A question is only asked where the answer stands in the story, in words of the story; so the model learns to look
rather than to invent. `facts(story)` returns (question, answer) pairs; `describe(story)` what the story is about.
"""
import re

PEOPLE = ("girl boy man woman dog cat bird bear rabbit bunny mouse frog fish fox lion duck puppy kitten monkey elephant "
          "horse cow pig owl turtle squirrel princess prince king queen child baby bee butterfly dragon fairy robot car "
          "truck train boat tree flower doll ant snail wolf sheep goat lady tiger chicken hen deer giraffe crab shark whale pony "
          "crocodile penguin panda mole hedgehog kangaroo zebra bug worm spider caterpillar parrot swan bat snake lizard dolphin octopus "
          "seal koala camel donkey goose turkey rooster crow eagle robin ladybug beetle cricket grasshopper dragonfly firefly raccoon "
          "skunk beaver otter hamster rat toad duckling lamb hippo gorilla leopard peacock pigeon seagull starfish jellyfish lobster "
          "dinosaur unicorn witch wizard pirate farmer doctor teacher giant clown knight ghost monster elf baker chef sailor soldier "
          "policeman fireman nurse astronaut magician painter hunter fisherman mermaid singer dancer alien bus plane rocket ship "
          "tractor star snowman cloud balloon leaf helicopter bike").split()
KIND = "|".join(PEOPLE)
NAMED = re.compile(rf"\b((?:(?!a |an |the |this |that |his |her |their |was |big |and )[a-z]+ )?(?:{KIND})) (?:named|called) ([A-Z][a-z]+)\b")
THERE_WAS = re.compile(rf"[Tt]here (?:was|lived)(?: once)? ((?:an?|the) (?:[a-z]+, )?(?:[a-z]+ )?(?:{KIND}))(?=[ .,])")
FEELING = "happy|sad|scared|proud|excited|angry|surprised|sorry|tired|curious|hungry|lonely|brave"
THINGS = ("ball toy doll box book cake tree flower car truck boat bike hat kite park garden forest beach house castle "
          "river lake sea mountain hill farm store zoo school cave rock stick leaf star moon sun cloud rain snow bear dog cat "
          "bird fish frog rabbit bunny mouse fox lion duck puppy kitten monkey elephant horse cow pig owl turtle squirrel "
          "princess king queen dragon fairy robot train apple banana cookie candy soup sandwich pie bread egg carrot pumpkin "
          "balloon drum guitar piano bell lamp key map treasure ring crown sword shoe dress coat blanket pillow bed chair "
          "table door window swing slide sandbox pond bridge road field nest egg butterfly bee ant spider snail worm ghost "
          "monster witch wizard pirate farmer doctor teacher birthday party picnic race game song dance picture painting "
          "letter present secret wish dream storm wind fire icecream chocolate milk juice honey jam berry orange lemon girl boy man "
          "woman tiger wolf sheep goat chicken hen deer giraffe crab shark whale pony crocodile penguin panda hedgehog zebra bug "
          "caterpillar parrot swan bat snake lizard bus plane rocket ship helicopter tractor tower mirror clock camera phone "
          "computer radio puzzle block statue fountain basket bag bottle cup spoon plate pot puppet teddy mommy daddy grandma "
          "grandpa brother sister friend baby prince angel giant clown soldier policeman fireman astronaut magician chef baker "
          "market kitchen bedroom attic island desert jungle village city street playground museum library circus shell "
          "feather diamond jewel necklace bracelet hammer shovel rope ladder tent umbrella scarf glove sock button "
          "mushroom grape peach pear cherry strawberry tomato potato onion corn cheese pizza muffin cupcake "
          "pancake cereal tea snowman rainbow mud puddle sand wave bath tub soap pencil crayon paint trumpet violin").split()
MASS = set("rain snow soup bread milk juice honey jam wind fire icecream chocolate candy treasure corn cheese pizza cereal tea mud "
           "sand soap paint".split())
ONLY = set("sun moon sea wind rain snow beach park zoo".split())
COLORS = "red|blue|green|yellow|pink|purple|white|black|brown|orange|golden"
THING_SET = set(THINGS)
SAD_END = re.compile(r"\b(sad|cried|sorry|lonely|lost|never|hurt|scared|died)\b")
HAPPY_END = re.compile(r"\b(happy|happily|smiled|laughed|hugged|proud|fun|friends|glad|safe|loved)\b")
SENTENCE = re.compile(r'[^.!?]+[.!?]+"?\s*')


def sentences(story):
    return [s.strip() for s in SENTENCE.findall(story) if len(s.strip()) > 3]


def mood(story):
    """'sad', 'happy' or None, by the last sentences."""
    last = sentences(story)[-3:]
    tail = " ".join(last)
    sad, happy = len(SAD_END.findall(tail)), len(HAPPY_END.findall(tail))
    if sad > happy and not HAPPY_END.search(" ".join(last[-2:])):
        return "sad"
    return "happy" if happy > 0 and sad == 0 else None


def things(story):
    """Nouns of the list that matter in the story, most frequent first."""
    counts = {}
    for word in re.findall(r"[a-z]+", story.lower().replace("ice cream", "icecream")):
        if word.endswith("s") and word[:-1] in THING_SET:
            word = word[:-1]
        if word in THING_SET:
            counts[word] = counts.get(word, 0) + 1
    begin = story[:240].lower()
    return [w for w, c in sorted(counts.items(), key=lambda item: -item[1]) if c > 2 or (c > 1 and w in begin)]


def heroes(story):
    """[(kind, name)]: 'little girl', 'Lily'."""
    found, seen = [], set()
    for kind, name in NAMED.findall(story):
        if name not in seen:
            seen.add(name)
            found.append((kind, name))
    return found


def article(noun):
    if noun in ONLY:
        return "the " + noun
    if noun in MASS:
        return noun.replace("icecream", "ice cream")
    if noun in ("mommy", "daddy", "grandma", "grandpa"):
        return "a " + noun
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def describe(story):
    """A short phrase for what the story is about, or None."""
    named = heroes(story)
    nouns = things(story)
    if named:
        kind, name = named[0]
        return f"{article(kind)} named {name}"
    return article(nouns[0]) if nouns else None


def find(pattern, story):
    match = re.search(pattern, story)
    return match.group(1).strip() if match else None


END = r"(?=[.,!?]| and | but | because | so | when | with | that | to | for | until )"


def facts(story, rng):
    """Question and answer pairs about the story, each answer taken from its words."""
    pairs = []
    named = heroes(story)
    lines = sentences(story)
    if named:
        kind, name = named[0]
        short = kind.split()[-1]
        who = f"The story is about {article(kind)} named {name}."
        pairs += [("Who is the story about?", who), ("Who is in the story?", who),
                  ("What is the story about?", who),
                  (f"What is the name of the {short}?", f"The {short}'s name is {name}."),
                  (f"Who is {name}?", f"{name} is {article(kind)}."),
                  (f"What was the {short} called?", f"The {short} was called {name}.")]
        for kind2, name2 in named[1:2]:
            pairs += [("Who else is in the story?", f"There is also {article(kind2)} named {name2}."),
                      (f"Who is {name2}?", f"{name2} is {article(kind2)}.")]
        he = r"(?:" + name + r"|[Ss]he|[Hh]e)"
        places = find(he + r" (?:went|walked|ran|drove|flew|came|go) (to the [a-z]+(?: [a-z]+)?)" + END, story)
        if places:
            other = rng.choice([p for p in ("park", "zoo", "beach", "store", "forest", "farm") if p not in story] or ["moon"])
            pairs += [(f"Where did {name} go?", f"{name} went {places}."),
                      (f"Did {name} go {places}?", f"Yes, {name} went {places}."),
                      (f"Did {name} go to the {other}?", f"No, {name} went {places}.")]
        home = find(r"lived in ((?:a|an|the) [a-z]+(?: [a-z]+)?)" + END, story)
        if home:
            pairs.append((f"Where did {name} live?", f"{name} lived in {home}."))
        for verb, past in (("see", "saw"), ("find", "found"), ("have", "had"), ("make", "made"), ("get", "got")):
            what = find(he + rf" {past} ((?:a|an|the|some|his|her) [a-z]+(?: [a-z]+)?)" + END, story)
            if what:
                pairs.append((f"What did {name} {verb}?", f"{name} {past} {what}."))
        want = find(he + r" wanted to ([a-z][a-z ]{2,40}?)(?=[.,!?]| and | but | because | so )", story)
        if want:
            pairs.append((f"What did {name} want to do?", f"{name} wanted to {want}."))
        love = find(he + r" (?:loved|liked) to ([a-z][a-z ]{2,40}?)(?=[.,!?]| and | but | because | so )", story)
        if love:
            pairs += [(f"What did {name} love to do?", f"{name} loved to {love}."),
                      (f"What does {name} like?", f"{name} likes to {love}.")]
        feelings = re.findall(he + r" (?:was|felt) (?:so |very )?(" + FEELING + r")\b", story)
        if feelings:
            pairs += [(f"How did {name} feel at the end?", f"In the end {name} felt {feelings[-1]}."),
                      (f"How did {name} feel?", f"{name} felt {feelings[-1]}.")]
        said = re.search(name + r' said, "([^"]{3,80})"', story)
        if said:
            pairs.append((f"What did {name} say?", f'{name} said, "{said.group(1)}"'))
        nouns = [n for n in things(story) if n != short]
        if nouns:
            title = f"{name} and the {nouns[0].capitalize()}"
            pairs += [("Give the story a title.", title), ("What is a good title for the story?", f'"{title}" is a good title.')]
        why = re.search(he + rf" (?:was|felt) (?:so |very )?({FEELING}) (because [^.!?\"]{{5,80}})[.!?]", story)
        if why:
            pairs += [(f"Why was {name} {why.group(1)}?", f"{name} was {why.group(1)} {why.group(2)}.")]
        if not re.search(r"\b(brother|sister)\b", story):
            pairs.append((f"What is the name of {name}'s brother?", "The story does not say."))
        if not re.search(r"years? old|\b(three|four|five|six) year", story):
            pairs.append((f"How old is {name}?", f"The story does not say how old {name} is."))
    else:
        there = THERE_WAS.search(story)
        if there:
            who = f"The story is about {there.group(1)}."
            pairs += [("Who is the story about?", who), ("What is the story about?", who)]
    lesson = find(r"learned (that [^.!?\"]{10,100})[.!]", story)
    if lesson:
        pairs += [("What is the moral of the story?", f"The moral is {lesson}."), ("What can we learn from the story?", f"We can learn {lesson}.")]
    colors = re.findall(rf"\b({COLORS}) ([a-z]+)\b", story)
    for color, noun in colors[:2]:
        if noun in THING_SET and sum(n == noun for _, n in colors) == 1:
            pairs.append((f"What color was the {noun}?", f"The {noun} was {color}."))
    feeling = mood(story)
    if feeling:
        pairs += [("Is it a happy story or a sad story?", f"It is a {feeling} story."),
                  ("Is the story happy or sad?", f"It is a {feeling} story.")]
    if len(lines) > 2 and lines[-1] == "The end.":
        lines.pop()
    if lines and len(lines[-1]) < 160 and not lines[-1].count('"') % 2 and not lines[0].count('"') % 2:
        pairs += [("How does the story end?", lines[-1]), ("How does it begin?", lines[0]), ("What happens at the end?", lines[-1])]
    rng.shuffle(pairs)
    return pairs


def cut(story, rng):
    """The story in two parts, at the end of a sentence; None if it is too short."""
    ends = [m.end() for m in SENTENCE.finditer(story)]
    if len(ends) < 7:
        return None
    at = rng.choice(ends[2:-3])
    return story[:at].strip(), story[at:].strip()


def later(story):
    """What happens from "One day" on, told as another day; None if the story has no such day."""
    match = re.search(r"\b(?:One|The next|On a|On one) (?:[a-z]+ )?(?:day|morning|afternoon|night),", story)
    if not match or match.start() == 0 or len(story) - match.start() < 150:
        return None
    return "The next day," + story[match.end():]


def hero_of(story, topics):
    """The name of the hero if that is what the story is about, else None."""
    return next((name for kind, name in heroes(story)[:1] if kind.split()[-1] in topics), None)


def renamed(story, old, new):
    """The same story with another name for its hero; None where the new name is someone else's."""
    return re.sub(rf"\b{old}\b", new, story) if not re.search(rf"\b{new}\b", story) else None


def gender(story):
    """Which pronoun leads: 'she', 'he' or 'it'."""
    counts = {word: len(re.findall(rf"\b{word}\b", story.lower())) for word in ("she", "he", "it")}
    return max(counts, key=counts.get)


def stays(story, topics):
    """Whether a story keeps to its subject and does not go in circles."""
    words, lines = story.lower(), sentences(story)
    if len(set(lines)) < len(lines):
        return False
    tokens = re.findall(r"[a-z']+", words)
    fours = list(zip(tokens, tokens[1:], tokens[2:], tokens[3:]))
    if len(set(fours)) < 0.95 * len(fours):
        return False
    return all(len(re.findall(rf"\b{re.escape(topic.lower())}", words)) >= 2 for topic in topics)
