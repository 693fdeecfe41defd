"""Turns stories into conversations: requests, questions, continuations, small talk, roles. Everything here was written
for this model; the stories are the teacher's. `conversation(rng, stories)` returns a list of messages."""
import re

import extract

ASK_STORY = ["Tell me a story.", "Tell me a short story.", "Can you tell me a story?", "Please tell me a story.",
             "I would like to hear a story.", "Write a story.", "Write a short story for me.", "Story, please.",
             "Could you tell me a bedtime story?", "Tell me a bedtime story.", "I want a story!", "Make up a story."]
ASK_ABOUT = ["Tell me a story about {}.", "Tell me a short story about {}.", "Can you tell me a story about {}?",
             "Write a story about {}.", "Write a short story about {}.", "Please write a story about {}.",
             "I would like a story about {}.", "Do you know a story about {}?", "Make up a story about {}.",
             "Could you write a little story about {}?", "tell me a story about {}", "A story about {}, please."]
ASK_WITH = ["Tell me a story with {} and {}.", "Write a story with {} and {} in it.", "Can you write a story with {} and {}?",
            "Write a short story that has {} and {} in it.", "Tell me a story about {} and {}.",
            "Please tell me a story with {} and {}."]
ASK_MOOD = {"sad": ["Tell me a sad story.", "Can you tell me a sad story?", "Write a sad story.", "I want a sad story."],
            "happy": ["Tell me a happy story.", "Can you tell me a happy story?", "Write a happy story.", "I want a happy story."]}
ANOTHER = ["Another one, please.", "Another one!", "Tell me another one.", "Tell me another story.", "One more, please.",
           "Can you tell me another story?", "I want another story.", "More!"]
REMOOD = {"sad": ["Make it sad.", "Now make it sad.", "Can you make it sad?", "Now a sad one.", "Tell me a sad one now."],
          "happy": ["Make it happy.", "Now make it happy.", "Can you make it happy?", "Now a happy one."]}
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
    (["How are you?", "How are you today?", "How do you feel?", "how are you"],
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
    (["Thank you.", "Thank you!", "Thanks!", "Thanks", "That was a nice story.", "I liked that.", "Nice story!", "Good story."],
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
    """Stories with an index by what they are about."""

    def __init__(self, texts):
        self.texts = texts
        self.by_thing, self.by_hero, self.by_mood = {}, {}, {"sad": [], "happy": []}
        for i, text in enumerate(texts):
            mood = extract.mood(text)
            for thing in extract.things(text)[:3]:
                self.by_thing.setdefault((thing, None), []).append(i)
                if mood:
                    self.by_thing.setdefault((thing, mood), []).append(i)
            for hero in extract.heroes(text)[:1]:
                if extract.later(text):
                    self.by_hero.setdefault(hero[1], []).append(i)
            if mood:
                self.by_mood[mood].append(i)

    def any(self, rng):
        return rng.choice(self.texts)

    def about(self, rng, thing, mood=None):
        found = self.by_thing.get((thing, mood))
        return self.texts[rng.choice(found)] if found else None

    def sequel(self, rng, story):
        """Another day of the same hero, or None."""
        named = extract.heroes(story)
        found = self.by_hero.get(named[0][1], []) if named else []
        other = self.texts[rng.choice(found)] if found else story
        return extract.later(other) if other != story and extract.heroes(other)[0] == named[0] else None

    def with_mood(self, rng, mood):
        return self.texts[rng.choice(self.by_mood[mood])]


def request_for(rng, story):
    """A request that this story answers."""
    roll = rng.random()
    nouns = extract.things(story)[:3]
    mood = extract.mood(story)
    about = extract.describe(story)
    if roll < 0.15 or not nouns:
        return rng.choice(ASK_STORY)
    if roll < 0.25 and mood:
        return rng.choice(ASK_MOOD[mood])
    if roll < 0.32 and mood:
        return rng.choice(ASK_MOOD_ABOUT).format(mood, extract.article(rng.choice(nouns)))
    if roll < 0.48 and len(nouns) > 1:
        first, second = rng.sample(nouns, 2)
        return rng.choice(ASK_WITH).format(extract.article(first), extract.article(second))
    if roll < 0.62 and about:
        return rng.choice(ASK_ABOUT).format(about if rng.random() < 0.7 else about.split(" named ")[-1])
    return rng.choice(ASK_ABOUT).format(extract.article(rng.choice(nouns)))


def think(rng, request):
    """A short thought before the answer."""
    ways = ["The user says: {} I will answer.", "I should answer this: {}", "The user wants something. {} I can do that.",
            "Let me think. {} I know what to say."]
    return rng.choice(ways).format(request)


def story_turn(rng, stories, messages):
    """Asks for a story and gets it; sometimes only its beginning first, sometimes another day of the hero after it."""
    story = stories.any(rng)
    roll = rng.random()
    parts = extract.cut(story, rng) if roll < 0.2 else None
    about = extract.describe(story)
    if parts and roll < 0.12 and about:
        messages += [("user", rng.choice(ASK_START).format(about)), ("assistant", parts[0]),
                     ("user", rng.choice(CONTINUE)), ("assistant", parts[1])]
    elif parts:
        messages += [("user", rng.choice(GIVEN_START).format(parts[0])), ("assistant", parts[1])]
    else:
        messages += [("user", request_for(rng, story)), ("assistant", story)]
    if roll > 0.85:
        more = stories.sequel(rng, story)
        if more:
            messages += [("user", rng.choice(CONTINUE)), ("assistant", more)]
    return story


def question_turns(rng, story, messages, most):
    for question, answer in extract.facts(story, rng)[:rng.randint(1, most)]:
        messages.append(("user", question))
        messages.append(("assistant", answer))


def follow_up(rng, stories, messages, story):
    """Another story: any, one about something, or the same subject with a mood."""
    mood = rng.choice(["sad", "sad", "happy", None, None, None])
    nouns = extract.things(story)[:3]
    if mood:
        other = next((found for found in (stories.about(rng, n, mood) for n in nouns) if found), None)
        other = other or stories.with_mood(rng, mood)
        messages.append(("user", rng.choice(REMOOD[mood])))
    else:
        other = stories.any(rng)
        subjects = extract.things(other)[:3]
        if subjects and rng.random() < 0.5:
            messages.append(("user", rng.choice(NOW_ABOUT).format(extract.article(rng.choice(subjects)))))
        else:
            messages.append(("user", rng.choice(ANOTHER)))
    messages.append(("assistant", other))
    return other


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
    story = stories.any(rng)
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


def conversation(rng, stories, turns):
    """About `turns` exchanges, as a list of (role, text)."""
    messages = []
    while sum(role == "user" for role, _ in messages) < turns:
        roll = rng.random()
        if roll < 0.5:
            story = story_turn(rng, stories, messages)
            if rng.random() < 0.6:
                question_turns(rng, story, messages, 4)
            if rng.random() < 0.25:
                story = follow_up(rng, stories, messages, story)
                if rng.random() < 0.4:
                    question_turns(rng, story, messages, 2)
        elif roll < 0.8:
            small_talk(rng, messages)
        elif roll < 0.95:
            story_from_user(rng, stories, messages)
        else:
            tool_turn(rng, messages)
    if rng.random() < 0.06:
        messages = introduce(rng, messages)
    messages = casual(rng, messages)
    if rng.random() < 0.3:
        messages = apply_role(rng, messages)
    if rng.random() < 0.12 and messages[-1][0] == "assistant" and messages[-2][0] == "user":
        messages[-1] = ("assistant", f"<think>\n{think(rng, messages[-2][1][:120])}\n</think>\n\n{messages[-1][1]}")
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
