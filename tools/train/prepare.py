"""Stage 2: tokenizer and training tokens.

    python3 tools/train/prepare.py --stories stories.jsonl --corpora DIR --out data/

Trains a byte-level BPE of 6,144 tokens on a sample of everything, writes documents and conversations as token shards
(numpy uint16), held-out texts per source, and tokenizer.json. Stories are worked off in parts of 5,000, each by one
process; with --follow it starts while the teacher is still writing them. With --again it keeps the tokenizer and the
held-out texts of an earlier run, so that training can go on from its weights and be measured on what neither run saw. The
teacher writes one newline between paragraphs; --blank-lines is the share of stories and conversations that get two, --garbled
the share of plain stories, never of conversations, whose quotation marks were decoded wrongly (garbled.py).
"""
import argparse
import gzip
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import time

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import conversations
import extract
import garbled

VOCAB = 6144
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
# The pattern of Qwen3.5, so that every reader of those models knows it.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")
HELD_OUT = 0.005
PART = 8000  # stories
FIRST = 40000  # stories that the tokenizer sees, and that must be there before anything starts

QUOTES = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x2014: "-", 0x2013: "-"}

_tokenizer = None


def read_corpora(folder):
    """{source: [documents]}; plain ASCII punctuation, paragraphs of at most about 2,000 characters."""
    def lines(name):
        path = os.path.join(folder, name)
        return gzip.open(path, "rt", encoding="utf-8") if os.path.exists(path) else []

    books = []
    for line in lines("classic_childrens_books.jsonl.gz"):
        text = re.sub(r"^#.*$|^-+$", "", json.loads(line)["text"], flags=re.M)
        text = text.translate(QUOTES)
        piece = ""
        for paragraph in re.split(r"\n\s*\n", text):
            piece += paragraph.strip() + "\n\n"
            if len(piece) > 2000:
                books.append(piece.strip())
                piece = ""
    storybooks = []
    for line in lines("storybooks-en.jsonl.gz"):
        text = json.loads(line)["text"]
        if "NC" in re.search(r"License: \[(.*?)\]", text + "License: [NC]").group(1):
            continue
        body = re.sub(r"^\*.*$", "", re.sub(r"^#+.*$", "", text, flags=re.M), flags=re.M)
        storybooks.append(re.sub(r"\n{2,}", "\n", body).strip())
    dialogues = []
    for line in lines("dialogs_taskmaster4_chat.jsonl.gz"):
        dialogues.append(conversations.render([(m["role"], m["content"]) for m in json.loads(line)["messages"]]))
    sentences = [line.strip() for line in lines("commonvoice_en_sentences.txt.gz")]
    grouped = [" ".join(sentences[i:i + 8]) for i in range(0, len(sentences), 8)]
    return {"books": books, "storybooks": storybooks, "taskmaster": dialogues, "commonvoice": grouped}


def train_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()  # as Qwen3.5: GGUF has one name for pattern and normaliser
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL[:3]])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in SPECIAL[3:]])  # part of what is said
    return tokenizer


def _setup(path):
    global _tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer = Tokenizer.from_file(path)


def _encode(texts):
    end = _tokenizer.token_to_id("<|endoftext|>")
    return np.concatenate([np.zeros(0, np.uint16)] + [np.array(_tokenizer.encode(text).ids + [end], dtype=np.uint16) for text in texts])


def sort_out(records):
    """(records of known subject that keep to it, texts of the others)."""
    known = [{**record, "text": record["text"].translate(QUOTES)} for record in records
             if "topics" in record and extract.stays(record["text"], record["topics"])]
    return known, [record["text"] for record in records if "topics" not in record]


def _work(job):
    """One part of the stories -> tokens of (documents, short conversations, long conversations)."""
    seed, records, short_share, long_share, blank_lines, garbled_share = job
    rng = random.Random(seed)
    known, plain = sort_out(records)
    stories = conversations.Stories(known, plain)

    def talk(turns):
        return conversations.render(conversations.conversation(rng, stories, turns, blank_lines))

    plain = [conversations.spaced(text) if rng.random() < blank_lines else text for text in plain]
    plain = [garbled.garbled(text, rng) if rng.random() < garbled_share else text for text in plain]
    short = [talk(rng.choice([1, 1, 2, 2, 3, 4])) for _ in range(int(len(known) * short_share))]
    long = [talk(rng.randint(10, 24)) for _ in range(int(len(known) * long_share))]
    return _encode(plain), _encode(short), _encode(long)


def parts_of(path, follow):
    """Lists of PART stories as they come; the last may be shorter, and is left out when tiny."""
    with open(path, encoding="utf-8") as f:
        part, line = [], ""
        while True:
            ended = not follow or os.path.exists(path + ".done")
            piece = f.readline()
            line += piece
            if line.endswith("\n"):
                part.append(json.loads(line))
                line = ""
                if len(part) == PART:
                    yield part
                    part = []
            elif not piece and ended:
                break
            elif not piece:
                time.sleep(0.2)
        if len(part) >= 200:  # fewer would not have a story of each kind
            yield part


def encode_documents(tokenizer, texts):
    end = tokenizer.token_to_id("<|endoftext|>")
    return np.concatenate([np.array(e.ids + [end], dtype=np.uint16) for e in tokenizer.encode_batch(texts)])


def write_split(out, name, texts, tokenizer, held):
    """Everything but the held-out texts, as tokens. `held`: those of an earlier run, or None."""
    if held is None:
        held = texts[:max(1, min(400, int(len(texts) * HELD_OUT)))]
    write_json(out, f"held_out_{name}.json", held)
    kept = set(held)
    tokens = encode_documents(tokenizer, [text for text in texts if text not in kept])
    np.save(os.path.join(out, f"documents_{name}.npy"), tokens)
    print(f"{name}: {len(texts)} documents, {len(tokens)} tokens", flush=True)


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f)


def read_held(folder, name):
    path = os.path.join(folder or "", f"held_out_{name}.json")
    return json.load(open(path, encoding="utf-8")) if folder and os.path.exists(path) else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stories", required=True)
    parser.add_argument("--corpora", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--follow", action="store_true", help="the teacher is still writing; STORIES.done ends it")
    parser.add_argument("--again", help="data folder of an earlier run whose tokenizer and held-out texts are kept")
    parser.add_argument("--conversations", type=float, default=2.0, help="short conversations per story of known subject")
    parser.add_argument("--long", type=float, default=0.08, help="long conversations per story of known subject")
    parser.add_argument("--blank-lines", type=float, default=0.0, help="share of texts with blank lines between paragraphs")
    parser.add_argument("--garbled", type=float, default=0.0, help="share of plain stories with garbled quotation marks")
    parser.add_argument("--workers", type=int, default=max(1, os.cpu_count() - 1))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    rng = random.Random(args.seed)
    begin = time.time()

    sources = read_corpora(args.corpora)
    parts = parts_of(args.stories, args.follow)
    first = []
    while len(first) * PART < FIRST:
        part = next(parts, None)
        if part is None:
            break
        first.append(part)
    known, plain = sort_out([record for part in first for record in part])
    path = os.path.join(args.out, "tokenizer.json")
    if args.again:
        shutil.copy(os.path.join(args.again, "tokenizer.json"), path)
        tokenizer = Tokenizer.from_file(path)
    else:
        chats = conversations.Stories(known, plain)
        chat_text = [conversations.render(conversations.conversation(rng, chats, 3)) for _ in range(4000)]
        tokenizer = train_tokenizer(plain + [record["text"] for record in known] + [t for texts in sources.values() for t in texts[:6000]] + chat_text)
        tokenizer.save(path)
    print(f"tokenizer: {tokenizer.get_vocab_size()} tokens, {time.time() - begin:.0f} s", flush=True)

    held_plain, held_known = plain[:min(400, len(plain) // 4)], known[:min(1000, len(known) // 4)]
    held_chats = conversations.Stories(held_known, held_plain)
    write_json(args.out, "held_out_stories.json", read_held(args.again, "stories") or held_plain)
    write_json(args.out, "held_out_chat.json", [
        conversations.render(conversations.conversation(rng, held_chats, 3, args.blank_lines)) for _ in range(200)])
    kept = set(held_plain) | {record["text"] for record in held_known}
    first = [[record for record in part if record["text"].translate(QUOTES) not in kept and record["text"] not in kept] for part in first]

    def jobs():
        for number, part in enumerate(itertools.chain(first, parts)):
            yield args.seed * 1000003 + number, part, args.conversations, args.long, args.blank_lines, args.garbled

    with multiprocessing.Pool(args.workers, _setup, (path,)) as pool:
        results = pool.imap(_work, jobs())
        for name, texts in sources.items():
            if texts:
                rng.shuffle(texts)
                write_split(args.out, name, texts, tokenizer, read_held(args.again, name))
        shards = list(zip(*results))
    for name, tokens in zip(("documents_stories", "conversations_chat", "conversations_long"), shards):
        tokens = np.concatenate(tokens)
        np.save(os.path.join(args.out, name + ".npy"), tokens)
        print(f"{name}: {len(tokens)} tokens, {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
