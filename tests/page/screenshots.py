"""Pictures of the page for people to look at: both widths, both schemes; empty, busy, answered, an error.

usage: screenshots.py REPRISE FOLDER
"""
import pathlib
import shutil
import subprocess
import sys

import browser
import harness

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
SYSTEM = ("You are a kind storyteller. You tell short stories for children, with animals, gardens and rivers in them. "
          "Every story ends well, and nobody is ever hurt. You use simple words and short sentences. ") * 2
SIZES = {"wide": (1280, 860), "narrow": (400, 860)}


def shoot(page, name, parts=("chat",)):
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        for size, (width, height) in SIZES.items():
            page.resize(width, height)
            for part in parts if size == "narrow" else ("chat",):
                page.click(f"[data-show={part}]")
                page.settle()
                page.screenshot(FOLDER / f"{name}-{size}{'-' + part if size == 'narrow' and len(parts) > 1 else ''}-{scheme}.png")
    page.resize(*SIZES["wide"])


def main():
    server = harness.Server(PROGRAM, model=harness.TINY)
    page = browser.Browser(server)
    page.open()
    shoot(page, "empty", ("chat", "cache"))

    page.click("[data-scenario=shared]")
    page.wait(".result table")
    page.click("#new")
    page.click("[data-scenario=edit]")
    page.wait(".result table")
    shoot(page, "result", ("chat", "cache"))

    page.click("#new")
    page.set_system(SYSTEM)
    page.send("Tell me a story about a cat and a red ball.")
    page.send("What did the cat do then?")
    page.slow_down(6000)
    page.set_number("max_tokens", 1000)
    page.send("Tell me a long story about a dog who finds a boat on the river.", wait=False)
    page.until(lambda: len(page.text(".message:last-of-type .text:not(.plain)")) > 40, "some text")
    page.script("""const node = document.querySelector('[role=treeitem].lit');
                   node.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))""")
    shoot(page, "busy", ("list", "chat", "cache"))
    page.click("#stop")
    page.slow_down(-1)

    page.open()
    server.stop()
    page.until(lambda: "cannot be reached" in page.text("#link"), "the loss of the server")
    page.send("Hello")
    shoot(page, "error")
    page.close()

    server = harness.Server(PROGRAM, "--api-key", "right", model=harness.TINY)
    page = browser.Browser(server)
    page.open(wait="#key-dialog[open]")
    shoot(page, "key")
    page.close()
    server.stop()
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "48", *map(str, FOLDER.glob("*.png"))], check=True)


main()
