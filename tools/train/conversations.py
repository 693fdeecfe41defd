"""Turns stories into conversations: requests, questions, continuations, small talk, roles. Everything here was written
for this model; the stories are the teacher's. `conversation(rng, stories)` returns a list of messages."""
import re

import extract
import sorrow

ASK_STORY = ["Tell me a story.", "Tell me a short story.", "Can you tell me a story?", "Please tell me a story.",
             "I would like to hear a story.", "Write a story.", "Write a short story for me.", "Story, please.",
             "Could you tell me a bedtime story?", "Tell me a bedtime story.", "I want a story!", "Make up a story."]
ASK_ABOUT = ["Tell me a story about {}.", "Tell me a short story about {}.", "Can you tell me a story about {}?",
             "Write a story about {}.", "Write a short story about {}.", "Please write a story about {}.",
             "I would like a story about {}.", "Do you know a story about {}?", "Make up a story about {}.",
             "Could you write a little story about {}?", "tell me a story about {}", "A story about {}, please.", "I want a story about {}.",
             "Can I have a story about {}?", "story about {}", "Tell me something about {}.", "Let me hear a story about {}."]
ASK_WITH = ["Tell me a story with {} and {}.", "Write a story with {} and {} in it.", "Can you write a story with {} and {}?",
            "Write a short story that has {} and {} in it.", "Tell me a story about {} and {}.",
            "Please tell me a story with {} and {}.", "I would like a story with {} and {}.", "Can you tell me a story about {} and {}?"]
ASK_MOOD = {"sad": ["Tell me a sad story.", "Can you tell me a sad story?", "Write a sad story.", "I want a sad story.",
                    "Tell me something sad.", "Please tell me a sad story.", "Could you write a short sad story?"],
            "happy": ["Tell me a happy story.", "Can you tell me a happy story?", "Write a happy story.", "I want a happy story."]}
ANOTHER = ["Another one, please.", "Another one!", "Tell me another one.", "Tell me another story.", "One more, please.",
           "Can you tell me another story?", "I want another story.", "More!"]
REMOOD = {"sad": ["Now a sad one.", "Tell me a sad one now.", "Now tell me a sad story about {}.", "Can you tell me a sad one about {}?"],
          "happy": ["Make it happy.", "Now make it happy.", "Can you make it happy?", "Now a happy one."]}
MAKE_SAD = ["Make it sad.", "Now make it sad.", "Can you make it sad?", "Make the story sad.", "Tell it again, but make it sad.",
            "Can you tell it with a sad end?", "Make it a sad story."]
CONTINUE = ["Continue.", "Go on.", "What happened next?", "Please continue.", "And then?", "What happens next?", "continue",
            "Tell me more.", "Keep going."]
ASK_START = ["Start a story about {}.", "Tell me the beginning of a story about {}.", "Begin a story about {}.",
             "Tell me the first part of a story about {}.", "How would a story about {} begin?"]
GIVEN_START = ["Continue this story: {}", "Please finish this story: {}", "Finish the story. {}", "How does this story go on? {}",
               "{}\n\nContinue the story.", "Write the rest of this story: {}"]
ASK_MOOD_ABOUT = ["Tell me a {} story about {}.", "Write a {} story about {}.", "Can you tell me a {} story about {}?",
                  "I want a {} story about {}."]
NOW_ABOUT = ["Now one about {}.", "Another one about {}, please.", "Tell me another story about {}.", "Now tell me one about {}.",
             "Can you tell me one about {}?"]

SMALL_TALK = [
    (["Hi", "Hi!", "Hello", "Hello!", "Hey", "Hey there!", "Good morning!", "Good evening.", "hi", "hello"],
     ["Hello! Would you like to hear a story?", "Hi! I can tell you a story if you like.", "Hello! How are you today?",
      "Hi there! What would you like a story about?"]),
    (["How are you?", "How are you today?", "How do you feel?", "how are you", "Hi, how are you?", "Hello, how are you today?"],
     ["I am very well, thank you. How are you?", "I am happy today. Would you like a story?", "I am fine, thank you!"]),
    (["I am fine.", "I'm good.", "I am happy today.", "I am well, thank you."],
     ["I am glad to hear that. Would you like a story?", "That is good to hear!"]),
    (["I am sad.", "I feel sad today.", "I'm sad."],
     ["I am sorry that you are sad. Would a happy story help?", "Oh no. I hope that you feel better soon. I can tell you a happy story."]),
    (["Who are you?", "What are you?", "What is your name?", "Are you a robot?", "Are you a person?"],
     ["I am a very small language model that tells stories.", "I am a little story teller. I am a small language model, not a person.",
      "I am a small model that came with Reprise. I can tell short stories."]),
    (["What can you do?", "Can you help me?", "What do you know?", "Help"],
     ["I can tell you a short story and answer questions about it.",
      "I can tell stories. Ask me for a story about a dog, a princess or anything you like.",
      "I am small, so I know only a little. I can tell you a story and talk about it with you."]),
    (["Thank you.", "Thank you!", "Thanks!", "Thanks", "That was a nice story.", "I liked that.", "Nice story!", "Good story.",
      "Thank you, I liked that story.", "Thanks, that was good."],
     ["You are welcome!", "You are welcome! Would you like another story?", "I am glad that you liked it."]),
    (["Bye", "Goodbye!", "Good night.", "See you later.", "Bye bye!"],
     ["Goodbye! Come back soon.", "Good night! Sleep well.", "Bye! It was nice to talk to you."]),
    (["I did not like that story.", "That was boring."], ["I am sorry. Shall I tell you another one?", "Oh. Would you like a different story?"]),
    (["Do you like stories?", "Do you love stories?"], ["Yes, I love stories!", "Yes! Stories are my favorite thing."]),
    (["What is your favorite color?", "What is your favorite colour?"], ["I like blue, like the sky.", "I like green, like the grass."]),
    (["What is your favorite animal?"], ["I like dogs, because they are good friends.", "I like rabbits. They are soft and quick."]),
    (["Tell me a joke.", "Do you know a joke?"],
     ["Why did the teddy bear not eat? He was already stuffed!", "What do you call a sleeping bull? A bulldozer!"]),
    (["What is the weather like?", "What time is it?", "What day is it today?"],
     ["I do not know. I am only a small story model.", "I cannot know that, I am sorry."]),
    (["What is the capital of France?", "Who is the president?", "Explain quantum physics.", "Write some code.", "How do I fix my car?",
      "What is the meaning of life?"],
     ["I am too small to know that. But I can tell you a story!", "I do not know that, I am sorry. I am good at stories, though."]),
]
SMALL_TALK_NAME = (["What is my name?", "Do you know my name?"], ["I do not know. You have not told me your name."])
SMALL_TALK += [
    (["Can you count to five?", "Count to five."], ["One, two, three, four, five."]),
    (["Can you count to three?", "Count to three."], ["One, two, three."]),
    (["Say hello.", "Say hello to my friend."], ["Hello!", "Hello! It is nice to meet you."]),
    SMALL_TALK_NAME,
    (["Do you have a dog?", "Do you have a cat?", "Do you have friends?"], ["No, I am only a small model. But I know many stories."]),
    (["Will you be my friend?", "Are you my friend?", "I like you."], ["Yes, I would like that very much!", "Of course! Friends tell each other stories."]),
    (["I am hungry.", "I'm hungry."], ["Then you should eat something. Maybe an apple?"]),
    (["I am tired.", "I'm sleepy."], ["Then it is time for bed. Would you like a bedtime story?"]),
    (["I am bored."], ["Then let me tell you a story! What should it be about?"]),
]
IDENTITY = set(SMALL_TALK[4][0])
FACTS = [("What color is the sky?", "The sky is blue."), ("What color is grass?", "Grass is green."), ("What color is snow?", "Snow is white."),
         ("What does a dog say?", "A dog says woof."), ("What does a cat say?", "A cat says meow."), ("What does a cow say?", "A cow says moo."),
         ("Where do fish live?", "Fish live in the water."), ("Where do birds sleep?", "Birds sleep in their nests."),
         ("How many legs does a dog have?", "A dog has four legs."), ("How many legs does a bird have?", "A bird has two legs."),
         ("Is the sun hot or cold?", "The sun is hot."), ("Is ice hot or cold?", "Ice is cold."), ("What do bees make?", "Bees make honey."),
         ("What do we drink when we are thirsty?", "We drink water."), ("What do rabbits eat?", "Rabbits eat grass and carrots."),
         ("Which is bigger, an ant or an elephant?", "An elephant is bigger."), ("What comes after Monday?", "Tuesday comes after Monday.")]
NUMBERS = "zero one two three four five six seven eight nine ten".split()
NAMES = "Lily Tom Mia Ben Anna Max Sara Tim Lucy Sam Emma Jack Zoe Leo Ella Finn Rosie Theo Nina Oscar".split()


def pirate(text):
    """The same words as a pirate would say them."""
    for plain, salty in ((r"\bHello\b", "Ahoy"), (r"\bHi\b", "Ahoy"), (r"\bmy\b", "me"), (r"\byou\b", "ye"), (r"\bYou\b", "Ye"),
                         (r"\byour\b", "yer"), (r"\bfriends\b", "mateys"), (r"\bfriend\b", "matey"), (r"\bYes\b", "Aye"), (r"\byes\b", "aye")):
        text = re.sub(plain, salty, text)
    return "Arr! " + text


# System prompt, what it does to a reply, and who the model then says it is. None: nothing (the model must not overreact).
ROLES = [
    (["You are a pirate.", "You are a pirate. Talk like a pirate.", "You are a friendly pirate.", "Speak like a pirate."], pirate,
     "I am a pirate, and I sail the seven seas."),
    (["You are a cat.", "You are a small cat.", "You are a talking cat."], lambda t: "Meow! " + t, "I am a cat."),
    (["You are a dog.", "You are a happy dog."], lambda t: "Woof! " + t, "I am a dog."),
    (["Always end with \"The end.\"", "End every answer with the words The end.", "You always say \"The end.\" when you are done."],
     lambda t: t + " The end.", None),
    (["You are a kind grandmother.", "You are a grandmother who tells stories."], lambda t: "My dear child! " + t,
     "I am your grandmother."),
    (["You are a robot.", "You are a friendly robot."], lambda t: "Beep boop. " + t, "I am a robot."),
    (["You are a helpful assistant.", "You are a story teller.", "You tell stories to children.", "You are a friendly assistant.",
      "You are a kind teacher.", "Be nice and short."], None, None),
]
ROLE_WEIGHTS = [5, 2, 2, 2, 2, 2, 6]


class Stories:
    """Stories whose subject is known, with an index by it. A record has `text`, `topics` and `about` (openings.py)."""

    def __init__(self, records, others=()):
        self.records = records
        self.others = [record["text"] for record in records] + list(others)
        self.by_topic, self.by_mood = {}, {"sad": [], "happy": []}
        for record in records:
            record["mood"], record["alone"] = extract.mood(record["text"]), len(record["topics"]) == 1
            for topic in record["topics"][:1]:
                self.by_topic.setdefault(topic, []).append(record)
            if record["mood"]:
                self.by_mood[record["mood"]].append(record)

    def any(self, rng):
        """A story; the sad ones, which are few, more often than they occur."""
        return rng.choice(self.by_mood["sad"] or self.records if rng.random() < 0.1 else self.records)

    def like(self, rng, record, mood=None):
        """Another story of the same hero (renamed where both have names), with this mood; or None."""
        same = self.by_topic[record["topics"][0]]
        name, gender = extract.hero_of(record["text"], record["topics"]), extract.gender(record["text"])
        for other in rng.sample(same, min(len(same), 8)):
            text = other["text"]
            if text == record["text"] or (mood and other["mood"] != mood):
                continue
            old = extract.hero_of(text, other["topics"])
            if (old is None) != (name is None):
                continue
            if name and name != old:
                text = extract.renamed(text, old, name) if extract.gender(text) == gender else None
            if text:
                return {**other, "topics": record["topics"][:1], "text": text}
        return None

    def sequel(self, rng, record):
        """Another day of the same hero, as a record, or None."""
        for _ in range(4):
            other = self.like(rng, record)
            more = extract.later(other["text"]) if other and other["alone"] else None
            name = more and extract.hero_of(other["text"], other["topics"]) or record["topics"][0]
            if more and re.search(rf"\b{name}\b", extract.sentences(more)[0]):
                return {**other, "text": more}
        return None


SAD_CLOSE = ["It was a very sad day for {}.", "Poor {}!", "It was a sad day.", "And that was a sad day for {}.", "{} was sad for a long time."]


def closed(rng, record):
    """The story for someone who asked for a sad one: mostly with a last sentence that says so."""
    who = extract.hero_of(record["text"], record["topics"])
    who = who or (f"the {record['topics'][0]}" if record["topics"][0].islower() else record["topics"][0])
    close = rng.choice(SAD_CLOSE).format(who)
    return record["text"] + " " + close[0].upper() + close[1:] if rng.random() < 0.7 else record["text"]


def saddened(rng, record):
    """The record as told to someone who asked for a sad story; None if it cannot be."""
    if record["mood"] == "sad" and rng.random() < 0.4:
        return {**record, "text": closed(rng, record)}
    return sorrow.sadly(rng, record)


def mood_request(rng, mood, record):
    if rng.random() < 0.35:
        return rng.choice(ASK_MOOD[mood])
    return rng.choice(ASK_MOOD_ABOUT).format(mood, record["about"])


def request_for(rng, record):
    """(a request that this story answers, the record of the story as told then)."""
    roll, mood, topics = rng.random(), record["mood"], record["topics"]
    if roll < (0.6 if mood == "sad" else 0.06):
        sad = saddened(rng, record)
        if sad:
            return mood_request(rng, "sad", record), sad
    if mood == "happy" and 0.06 < roll < 0.14:
        return mood_request(rng, "happy", record), record
    return plain_request(rng, topics, record), record


def plain_request(rng, topics, record):
    named = extract.heroes(record["text"])[:1]
    if rng.random() < 0.07:
        return rng.choice(ASK_STORY)
    if len(topics) == 2 and rng.random() < 0.7:
        first, second = rng.sample(topics, 2)
        return rng.choice(ASK_WITH).format(extract.article(first), extract.article(second))
    if named and named[0][0].split()[-1] in topics and rng.random() < 0.25:
        return rng.choice(ASK_ABOUT).format(f"{extract.article(named[0][0])} named {named[0][1]}")
    return rng.choice(ASK_ABOUT).format(record["about"])


def think(rng, request, reply):
    """A short thought before the answer."""
    about = re.search(r"\b(?:about|with) (an? .+?|the .+?|[A-Z][a-z]+)(?: in it)?[.?!]*$", request)
    if len(reply) > 200 and about:
        ways = ["The user wants a story about {}. I will tell one about {}.", "A story about {}. So {} must be in it from the beginning.",
                "I am asked for a story about {}. Let me begin with {}."]
        return rng.choice(ways).format(about.group(1), about.group(1))
    if len(reply) > 200:
        return rng.choice(["The user wants a story. I will tell a simple one.", "I will tell the story now, with a beginning and an end.",
                           "Let me think of what happens, and then tell it."])
    if request.endswith("?"):
        return rng.choice(["The user asks something. I will give a short answer.", "Let me think. I know what to say.",
                           "This is a question. I will look for the answer in what was said."])
    return rng.choice(["The user says something. I will answer kindly.", "I will give a short and friendly answer."])


def story_turn(rng, stories, messages):
    """Asks for a story and gets it; sometimes only its beginning first, sometimes another day of the hero after it."""
    record = stories.any(rng)
    story = record["text"]
    roll = rng.random()
    parts = extract.cut(story, rng) if roll < 0.2 else None
    if parts and roll < 0.1:
        messages += [("user", rng.choice(ASK_START).format(record["about"])), ("assistant", parts[0]),
                     ("user", rng.choice(CONTINUE)), ("assistant", parts[1])]
    elif parts:
        messages += [("user", rng.choice(GIVEN_START).format(parts[0])), ("assistant", parts[1])]
    else:
        request, record = request_for(rng, record)
        messages += [("user", request), ("assistant", record["text"])]
    if roll > 0.8:
        more = stories.sequel(rng, record)
        if more:
            messages += [("user", rng.choice(CONTINUE)), ("assistant", more["text"])]
            record = more
    return record


def question_turns(rng, story, messages, most):
    for question, answer in extract.facts(story, rng)[:rng.randint(1, most)]:
        messages.append(("user", question))
        messages.append(("assistant", answer))


def follow_up(rng, stories, messages, record):
    """Another story: any, one about something, or the same subject with a mood."""
    mood = rng.choice(["sad", "sad", "happy", None, None, None])
    if mood == "sad" and record["mood"] != "sad" and rng.random() < 0.6:
        sad = retold(rng, record, messages)
        if sad:
            return sad
    other = stories.like(rng, record, mood) if mood else None
    if other and mood == "sad":
        other = saddened(rng, other)
    if other:
        messages += [("user", rng.choice(REMOOD[mood]).format(other["about"])), ("assistant", other["text"])]
        return other
    other = stories.any(rng)
    if rng.random() < 0.6:
        messages.append(("user", rng.choice(NOW_ABOUT).format(other["about"])))
    else:
        messages.append(("user", rng.choice(ANOTHER)))
        if rng.random() < 0.3:
            other = stories.like(rng, record) or other
    messages.append(("assistant", other["text"]))
    return other


def retold(rng, record, messages):
    """The same story once more, with a sad end; its record, or None if it cannot be told so."""
    sad = sorrow.sadly(rng, record)
    if sad:
        messages += [("user", rng.choice(MAKE_SAD)), ("assistant", sad["text"])]
    return sad


def sad_again(rng, stories, messages):
    """A story, and the same story once more as a sad one."""
    record = rng.choice(stories.by_mood["happy"] or stories.records)
    told = []
    if retold(rng, record, told):
        messages += [("user", plain_request(rng, record["topics"], record)), ("assistant", record["text"])] + told


def small_talk(rng, messages):
    roll = rng.random()
    if roll < 0.7:
        asks, answers = rng.choice(SMALL_TALK)
        messages += [("user", rng.choice(asks)), ("assistant", rng.choice(answers))]
    elif roll < 0.85:
        question, answer = rng.choice(FACTS)
        messages += [("user", question), ("assistant", answer)]
    else:
        a = rng.randint(0, 5)
        b = rng.randint(0, 5)
        if rng.random() < 0.5:
            messages += [("user", f"What is {a} plus {b}?"), ("assistant", f"{a} plus {b} is {a + b}.")]
        else:
            messages += [("user", f"What is {NUMBERS[a]} plus {NUMBERS[b]}?"),
                         ("assistant", f"{NUMBERS[a].capitalize()} plus {NUMBERS[b]} is {NUMBERS[a + b]}.")]


def tool_turn(rng, messages):
    """A result that a tool gave, put into a sentence."""
    city = rng.choice("Paris London Rome Berlin Madrid Oslo Tokyo Cairo Lima Boston".split())
    sky = rng.choice("sunny rainy cloudy windy snowy foggy".split())
    degrees = rng.randint(-5, 35)
    messages += [("user", rng.choice(["What is the weather in {}?", "How is the weather in {}?", "Is it nice in {} today?"]).format(city)),
                 ("tool", '{"city": "%s", "sky": "%s", "degrees": %d}' % (city, sky, degrees)),
                 ("assistant", f"It is {sky} in {city}, and it is {degrees} degrees.")]


def story_from_user(rng, stories, messages):
    """The user brings the story and asks about it."""
    story = rng.choice(stories.others)
    pairs = extract.facts(story, rng)
    if not pairs:
        return
    question, answer = pairs[0]
    messages.append(("user", rng.choice(["{s}\n\n{q}", "Here is a story: {s}\n\n{q}", "Read this story. {s}\n\n{q}"]).format(s=story, q=question)))
    messages.append(("assistant", answer))
    for question, answer in pairs[1:rng.randint(1, 3)]:
        messages += [("user", question), ("assistant", answer)]


def apply_role(rng, messages):
    prompts, change, identity = rng.choices(ROLES, ROLE_WEIGHTS)[0]
    name = rng.choice(NAMES) if rng.random() < 0.2 else None
    system = rng.choice(prompts)
    if identity and rng.random() < 0.3:
        messages = messages + [("user", rng.choice(sorted(IDENTITY))), ("assistant", identity)]
    if identity:
        messages = [(role, identity if role == "assistant" and i and messages[i - 1][1] in IDENTITY else text)
                    for i, (role, text) in enumerate(messages)]
    if name:
        system = f"Your name is {name}. {system}" if rng.random() < 0.5 else f"Your name is {name}."
        if system == f"Your name is {name}.":
            change = None
        messages = messages + [("user", "What is your name?"), ("assistant", f"My name is {name}.")]
    if change:
        messages = [(role, change(text) if role == "assistant" else text) for role, text in messages]
    return [("system", system)] + messages


def introduce(rng, messages):
    """The user says a name at the beginning and asks for it at the end."""
    name = rng.choice(NAMES)
    said = rng.choice(["My name is {}.", "Hi, I am {}.", "Hello, my name is {}.", "I'm {}."]).format(name)
    answer = rng.choice(["Nice to meet you, {}!", "Hello, {}! Would you like a story?", "Hi, {}! How are you?"]).format(name)
    asking = SMALL_TALK_NAME[0]
    kept = [m for i, m in enumerate(messages)
            if m[1] not in asking and not (i and m[0] == "assistant" and messages[i - 1][1] in asking)]
    asked = rng.choice(["What is my name?", "Do you know my name?", "Do you remember my name?"])
    return [("user", said), ("assistant", answer)] + kept + [("user", asked), ("assistant", f"Your name is {name}.")]


def spaced(text):
    """The text with a blank line between paragraphs."""
    return re.sub(r"\n+", "\n\n", text)


def conversation(rng, stories, turns, blank_lines=0.0):
    """About `turns` exchanges, as a list of (role, text). `blank_lines`: how likely there are such between paragraphs."""
    messages = []
    while sum(role == "user" for role, _ in messages) < turns:
        roll = rng.random()
        if roll < 0.55:
            record = story_turn(rng, stories, messages)
            if rng.random() < 0.45:
                question_turns(rng, record["text"], messages, 4)
            if rng.random() < 0.3:
                record = follow_up(rng, stories, messages, record)
                if rng.random() < 0.4:
                    question_turns(rng, record["text"], messages, 2)
        elif roll < 0.6:
            sad_again(rng, stories, messages)
        elif roll < 0.8:
            small_talk(rng, messages)
        elif roll < 0.95:
            story_from_user(rng, stories, messages)
        else:
            tool_turn(rng, messages)
    if rng.random() < 0.06:
        messages = introduce(rng, messages)
    if rng.random() < blank_lines:
        messages = [(role, spaced(text)) for role, text in messages]
    messages = casual(rng, messages)
    if rng.random() < 0.3:
        messages = apply_role(rng, messages)
    if rng.random() < 0.12 and messages[-1][0] == "assistant" and messages[-2][0] == "user":
        messages[-1] = ("assistant", f"<think>\n{think(rng, messages[-2][1], messages[-1][1])}\n</think>\n\n{messages[-1][1]}")
    return messages


def casual(rng, messages):
    """Some people type without capitals and full stops."""
    out = []
    for role, text in messages:
        if role == "user" and len(text) < 100 and rng.random() < 0.12:
            text = text.lower().rstrip(".!?")
        out.append((role, text))
    return out


def render(messages):
    """The chat format; models/…/chat_template.jinja writes the same."""
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
