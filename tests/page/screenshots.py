"""Pictures of the page for people to look at: both widths, both schemes; empty, a reply, a scenario with the cache, the
list, the settings.

usage: screenshots.py REPRISE FOLDER
"""
import pathlib
import shutil
import subprocess
import sys

import browser
import harness
from browser import said

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
SIZES = {"wide": (1400, 900), "narrow": (420, 900)}
# The bundled model tells stories; what the page makes of Markdown is shown with a reply that is given to it.
REPLY = r"""A quadratic $ax^2 + bx + c = 0$ with $a \neq 0$ has the roots

$$x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$$

```python
def roots(a, b, c):
    d = b * b - 4 * a * c  # the discriminant
    return [(-b + s * d ** 0.5) / (2 * a) for s in (1, -1)]
```

| discriminant | real roots |
|---|:-:|
| positive | 2 |
| zero | 1 |

- [x] derive the formula
- [ ] check `roots(1, -3, 2)`
"""
REPORT = {"id": "chatcmpl-1", "choices": [], "reprise": {
    "prompt_tokens": 291, "used_tokens": 268, "first_token_ms": 54, "total_ms": 4100, "generated_tokens": 171, "reason": "new"}}


def shoot(page, name, sizes=("wide", "narrow"), prepare=lambda size: None):
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        for size in sizes:
            page.resize(*SIZES[size])
            prepare(size)
            page.settle()
            page.screenshot(FOLDER / f"{name}-{size}-{scheme}.png")
    page.resize(*SIZES["wide"])


def shoot_chat(page):
    page.open()
    page.until(lambda: page.text("#context"), "the model")
    shoot(page, "empty")
    for text in ("A story about a cat", "Names for a small dog", "What does the moon do at night?"):
        page.answer_with([said("Once upon a time.")])
        page.send(text)
        page.click("#new")
    page.answer_with(*[[{"choices": [{"delta": {"reasoning_content": "The formula, code, a table."}}]}, [1400, said(REPLY)], REPORT]] * 2)
    page.send("How do I solve a quadratic equation? Show the formula and some Python.")
    page.click(".reply .regenerate")
    page.until(lambda: page.text(".versions") == "2/2", "the second version")
    page.wait(".katex-html")
    page.wait(".t-keyword")
    page.script("document.activeElement.blur()")
    shoot(page, "reply", prepare=lambda size: page.show("list" if size == "wide" else "chat"))
    shoot(page, "list", ("narrow",), lambda size: page.show("list"))
    page.show("list")
    page.click("#settings-button")
    shoot(page, "settings", ("wide", "narrow"))
    page.click("#settings-close")


def main():
    server = harness.Server(PROGRAM, model=harness.TINY)
    page = browser.Browser(server)
    shoot_chat(page)
    page.open()
    for name in ("shared", "edit"):
        page.click("#new")
        page.click(f"[data-scenario={name}]")
        page.wait(".result table")

    def with_cache(size):
        page.show("list" if size == "wide" else "chat")
        page.click(".message:last-of-type .report-line")
        page.until(lambda: page.all("#last-report del"), "the report")
        page.script("document.activeElement.blur(); document.getElementById('cache').scrollTop = 0")
    shoot(page, "result", prepare=with_cache)
    page.close()
    server.stop()
    pictures = sorted(map(str, FOLDER.glob("*.png")))
    for program in (["pngquant", "--force", "--ext", ".png", "--speed", "1", "48"], ["optipng", "-quiet", "-o5"]):
        if shutil.which(program[0]):
            subprocess.run([*program, *pictures], check=True)


main()
