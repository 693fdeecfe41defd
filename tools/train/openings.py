"""First words of stories whose subject is therefore known. The teacher goes on from them; requests then name the subject.

Without them a story's subject has to be guessed from its nouns, and a small model learns the teacher's favourite story (a
girl named Lily) better than what it was asked for. `opening(rng)` returns a dictionary: `topics` (nouns the story must stay
with), `about` (how a person would name them) and `words` (the first words themselves).
"""
import extract

ADJECTIVES = "little big brave kind small happy funny old young shy clever lonely curious silly gentle friendly hungry tiny lazy proud".split()
FAULTS = "greedy mean selfish careless stubborn foolish lonely naughty sad jealous weak old".split()
LOOKS = "big red small blue old shiny new little yellow pretty green special tiny soft colorful".split()
GIRLS = ("Lily Mia Anna Sara Lucy Emma Zoe Ella Rosie Nina Amy Daisy Jill Kate Ruby Sue Lisa Molly Sally Jane Grace Clara Ivy Maya Bella "
         "Nora Alice Eva Lola Betty").split()
BOYS = ("Tom Ben Max Tim Sam Jack Leo Finn Theo Oscar Bob Mark Nick Pip John Billy Joe Fred Dan Peter Henry Charlie Luke Adam Paul "
        "Eric Toby Noah Hugo Carl").split()
ANIMALS = ("dog cat bird bear rabbit bunny mouse frog fish fox lion duck puppy kitten monkey elephant horse cow pig owl turtle squirrel "
           "bee butterfly ant snail wolf sheep goat tiger chicken hen deer giraffe crab shark whale pony crocodile penguin panda hedgehog "
           "zebra spider worm caterpillar parrot swan bat snake lizard dolphin octopus seal kangaroo koala camel donkey goose turkey "
           "rooster crow eagle robin ladybug beetle cricket grasshopper dragonfly firefly raccoon skunk beaver otter mole hamster rat toad "
           "duckling lamb hippo gorilla leopard peacock pigeon seagull starfish jellyfish lobster dinosaur unicorn").split()
FOLK = ("princess prince king queen dragon fairy robot witch wizard pirate farmer doctor teacher girl boy man woman giant clown knight ghost "
        "monster elf baker chef sailor soldier policeman fireman nurse astronaut magician painter hunter fisherman mermaid singer "
        "dancer baby alien lady").split()
MOVING = "train boat car truck bus plane rocket ship tractor tree flower star snowman doll cloud balloon leaf helicopter bike".split()
BEINGS = ANIMALS * 3 + FOLK * 2 + MOVING * 2
HEROES = sorted(set(BEINGS))
PLACES = "forest river lake mountain hill farm castle garden cave island field village jungle pond".split()
OBJECTS = ["teddy bear"] + [thing for thing in extract.THINGS if thing not in HEROES and thing not in extract.MASS and thing not in extract.ONLY and
           thing not in PLACES and thing not in ("teddy", "mommy", "daddy", "friend", "brother", "sister", "birthday", "grandma", "grandpa")]
ONLY = {"moon": "looked at the moon", "sun": "loved the sun", "sea": "lived by the sea", "rain": "loved the rain", "snow": "loved the snow",
        "wind": "heard the wind", "beach": "went to the beach", "park": "went to the park", "zoo": "went to the zoo"}
FOOD = "soup bread honey chocolate candy pizza cheese jam corn cereal".split()
DRINKS = "milk juice tea".split()
JOYS = ["loved to play with {}", "wanted to have {}", "dreamed of {}", "was looking for {}", "had {}"]


def a(words):
    """With its article."""
    return extract.article(words)


def child(rng):
    """(girl or boy, name, She or He, her or his)."""
    return ("girl", rng.choice(GIRLS), "She", "her") if rng.random() < 0.5 else ("boy", rng.choice(BOYS), "He", "his")


def about_hero(rng):
    hero, adjective = rng.choice(BEINGS), rng.choice(ADJECTIVES)
    words = rng.choice(["Once upon a time, there was {a} {h} named", "Once upon a time, there was {a} {h} named", "One day, {a} {h}",
                        "Once upon a time, there was {a} {h}.", "Once upon a time, there was {b} who", "There was once {a} {h}.",
                        "Once upon a time, {a} {h} lived", "{a2} {h} was"])
    words = words.format(a=a(adjective), h=hero, b=a(hero), a2=a(adjective).capitalize())
    return {"topics": [hero], "about": f"{a(adjective)} {hero}" if adjective in words and rng.random() < 0.25 else a(hero), "words": words}


def about_child(rng):
    who, name, _, _ = child(rng)
    words = rng.choice(["Once upon a time, there was a {w} named {n}.", "Once upon a time, there was a little {w} named {n}.", "{n} was a little {w}.",
                        "One day, a {w} named {n}"]).format(w=who, n=name)
    little = "little " if "little" in words else ""
    return {"topics": [name], "about": rng.choice([name, f"a {little}{who} named {name}"]), "words": words}


def about_thing(rng):
    thing, look = rng.choice(OBJECTS), rng.choice(LOOKS)
    who, name, she, _ = child(rng)
    words = rng.choice(["Once upon a time, there was {a} {t}.", "One day, a {w} named {n} found {a} {t}.", "One day, {n} saw {a} {t}.",
                        "Once upon a time, there was a {w} named {n}. {s} had {a} {t}.",
                        "Once upon a time, there was a {w} named {n}. {s} wanted {b}."]).format(a=a(look), t=thing, w=who, n=name, s=she, b=a(thing))
    return {"topics": [thing], "about": f"{a(look)} {thing}" if look in words and rng.random() < 0.2 else a(thing), "words": words}


def two_heroes(rng):
    first, second = rng.sample(HEROES, 2)
    adjective = rng.choice(ADJECTIVES)
    words = rng.choice(["Once upon a time, there was {f} and {s}.", "One day, {a} {h} met {s}.", "Once upon a time, {f} and {s} were good friends.",
                        "Once upon a time, there was {a} {h}. One day, the {h} saw {s}.", "Once upon a time, there was {a} {h} who lived with {s}."])
    return {"topics": [first, second], "about": f"{a(first)} and {a(second)}",
            "words": words.format(f=a(first), s=a(second), a=a(adjective), h=first)}


def hero_and_thing(rng):
    hero, thing = rng.choice(BEINGS), rng.choice(OBJECTS)
    adjective, look = rng.choice(ADJECTIVES), rng.choice(LOOKS)
    words = rng.choice(["One day, {a} {h} found {t}.", "Once upon a time, there was {b} with {l} {o}.", "Once upon a time, there was {a} {h} who {j}.",
                        "Once upon a time, there was {a} {h}. One day, the {h} saw {l} {o}."])
    words = words.format(a=a(adjective), h=hero, t=a(thing), b=a(hero), l=a(look), o=thing, j=rng.choice(JOYS).format(a(thing)))
    return {"topics": [hero, thing], "about": f"{a(hero)} and {a(thing)}", "words": words}


def child_and_thing(rng):
    who, name, she, _ = child(rng)
    thing, look = rng.choice(OBJECTS + ANIMALS), rng.choice(LOOKS[:5])
    words = rng.choice(["Once upon a time, there was a {w} named {n}. {s} had {a} {t}.", "One day, a {w} found {a} {t}.",
                        "Once upon a time, there was a {w} who had {b}."])
    return {"topics": [who, thing], "about": f"a {who} and {a(thing)}",
            "words": words.format(w=who, n=name, s=she, a=a(look), t=thing, b=a(thing))}


def hero_and_place(rng):
    hero, place, adjective = rng.choice(BEINGS), rng.choice(PLACES), rng.choice(ADJECTIVES)
    words = rng.choice(["Once upon a time, there was {a} {h} who lived in {p}.", "Once upon a time, {a} {h} went to {p}.", "One day, {a} {h} found {p}."])
    return {"topics": [hero, place], "about": f"{a(hero)} and {a(place)}", "words": words.format(a=a(adjective), h=hero, p=a(place))}


def about_the_world(rng):
    who, name, she, _ = child(rng)
    if rng.random() < 0.5:
        what = rng.choice(list(ONLY))
        return {"topics": [what], "about": a(what), "words": f"Once upon a time, there was a little {who} named {name}. {she} {ONLY[what]}."}
    food = rng.choice(FOOD + DRINKS)
    words = rng.choice(["One day, {n} wanted some {f}.", "Once upon a time, there was a {w} named {n} who loved {f}.", "One day, {n} and {g} mom made some {f}."])
    return {"topics": [food], "about": food, "words": words.format(n=name, f=food, w=who, g="her" if she == "She" else "his")}


def sad(rng):
    """Such beginnings often end badly; whether this one did is found out later."""
    who, name, she, her = child(rng)
    if rng.random() < 0.25:
        thing = rng.choice(OBJECTS)
        words = rng.choice(["One day, {n} lost {g} {t}. {s} was very sad.", "One day, {n} broke {g} {t}. {s} was very sad.",
                            "Once upon a time, there was a {w} named {n}. {s} did not want to share {g} {t}."])
        return {"topics": [thing], "about": a(thing), "words": words.format(n=name, g=her, t=thing, s=she, w=who)}
    hero, adjective = rng.choice(BEINGS + ["girl", "boy"] * 8), rng.choice(FAULTS)
    words = rng.choice(["Once upon a time, there was {a} {h}.", "Once upon a time, there was {a} {h} named", "There was once {a} {h} who had no friends.",
                        "Once upon a time, there was an old {h} who was very sick.", "One day, {a} {h} did not listen.",
                        "Once upon a time, there was a little {h}. The {h} was lost and very sad."])
    return {"topics": [hero], "about": a(hero), "words": words.format(h=hero, a=a(adjective))}


KINDS = [(about_hero, 34), (about_child, 5), (about_thing, 16), (two_heroes, 10), (hero_and_thing, 10), (child_and_thing, 3), (hero_and_place, 4),
         (about_the_world, 4), (sad, 14)]


def opening(rng):
    return rng.choices([kind for kind, _ in KINDS], [share for _, share in KINDS])[0](rng)
