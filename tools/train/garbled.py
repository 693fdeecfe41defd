"""Quotation marks as a wrong decoding leaves them, for a share of the plain stories.

Much text of the web was written with typographic marks, stored as UTF-8 and read as Windows-1252, so that a mark became two
or three characters; bytes that Windows-1252 does not know were lost. `garbled(text, rng)` does the same to a text with plain
marks. Never applied to conversations: a model should read such text, not answer with it.
"""
import re


def typographic(text, quotes=True, apostrophes=True):
    """With typographic quotation marks, apostrophes and dashes, as a word processor sets them."""
    if quotes:
        text = re.sub(r'(^|[\s(\[-])"(?=\S)', "\\1\u201c", text).replace('"', "\u201d")
        text = re.sub(r"(^|[\s(\[\u201c-])'(?=\S)", "\\1\u2018", text)
    if apostrophes:
        text = text.replace("'", "\u2019")
    return re.sub(r"(?<=\s)-(?=\s)", "\u2013", re.sub(r"(?<=\w)--(?=\w)", "\u2014", text))


def misread(text):
    """Written as UTF-8, read as Windows-1252."""
    return text.encode("utf-8").decode("cp1252", errors="ignore")


def garbled(text, rng):
    """Writers mix: some marks are typographic in a text, or all of them."""
    quotes, apostrophes = rng.choice([(True, True), (True, True), (True, True), (True, False), (False, True)])
    return misread(typographic(text, quotes, apostrophes))
