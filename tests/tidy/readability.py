"""usage: readability.py PAGE...: whether the prose of pages is plain. Code, tables and headings do not count.

Over all pages, the median page has sentences of at most 17 words (median) and a reading ease of at least 50 (Flesch 1948: 100 is easy, 0
is hard). No paragraph or item of a list has more than 120 words. Prints each page that is above, and the medians."""

import pathlib
import re
import statistics
import sys

import pyphen

WORDS_MAX, EASE_MIN, PARAGRAPH_MAX = 17, 50, 120
SYLLABLES = pyphen.Pyphen(lang="en_US")


def paragraphs(text):
    """The paragraphs and items of lists, without Markdown's marks; a piece of code counts as one word."""
    text = re.sub(r"^\s*(```|~~~).*?^\s*\1\s*$", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if not re.match(r"\s*(\||#|<|:::|!\[)", line)]
        for item in re.split(r"^\s*(?:[-*]|\d+\.)\s", "\n".join(lines), flags=re.M):
            item = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", item)
            item = re.sub(r"[*_]{1,2}", "", re.sub(r"`[^`]*`", "code", item))
            if item.strip():
                yield " ".join(item.split())


def sentences(paragraph):
    return [sentence for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z(\"'])", paragraph) if len(sentence.split()) > 2]


def ease(found):
    words = [re.sub(r"\W", "", word) for sentence in found for word in sentence.split()]
    words = [word for word in words if word]
    syllables = sum(len(SYLLABLES.positions(word)) + 1 for word in words)
    return 206.835 - 1.015 * len(words) / len(found) - 84.6 * syllables / len(words)


def check(pages):
    """Returns complaints about pages, a dictionary of names and texts."""
    lengths, eases, problems = {}, {}, []
    for name, text in pages.items():
        all_of_page = list(paragraphs(text))
        found = [sentence for paragraph in all_of_page for sentence in sentences(paragraph)]
        for paragraph in all_of_page:
            if len(paragraph.split()) > PARAGRAPH_MAX:
                problems.append(f"{name}: a paragraph of {len(paragraph.split())} words, allowed are {PARAGRAPH_MAX}: {paragraph[:60]}...")
        if found:
            lengths[name] = statistics.median(len(sentence.split()) for sentence in found)
            eases[name] = ease(found)
    if not lengths:
        return ["no page has any prose"]
    words, easy = statistics.median(lengths.values()), statistics.median(eases.values())
    print(f"{len(lengths)} pages: median sentence {words} words, allowed {WORDS_MAX}; reading ease {easy:.0f}, at least {EASE_MIN}")
    if words > WORDS_MAX:
        longest = sorted(lengths, key=lengths.get)[-3:]
        problems.append(f"the median sentence has {words} words, allowed are {WORDS_MAX}; longest on {', '.join(longest)}")
    if easy < EASE_MIN:
        hardest = sorted(eases, key=eases.get)[:3]
        problems.append(f"the reading ease is {easy:.0f}, wanted is {EASE_MIN}; hardest are {', '.join(hardest)}")
    return problems


if __name__ == "__main__":
    complaints = check({path: pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:]})
    print("\n".join(complaints))
    sys.exit(1 if complaints else 0)
