"""Prompts for `outrider data synthesize --prompts`: what people ask about a topic, or about a text.

    python training/smollm2/tasks.py topics SEED COUNT TOPICS > PROMPTS
    python training/smollm2/tasks.py texts|sentences|german SEED COUNT CHATS > PROMPTS

A small model that writes its own user turns writes short and muddled ones; heads meet long, clear ones. `texts` asks for
summaries, answers and rewritings of what the model itself wrote in the chats of `topics`, so that no one else's text is in it;
`sentences` asks for translations into German, and `german` for the way back.
"""

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FORMS: Final = (
    "Write a news report about {}.",
    "Write a long newspaper article about {}, with names, places and dates.",
    "Write an encyclopedia article about {}.",
    "Write an encyclopedia article about {}.",
    "Explain {} in detail.",
    "Write a blog post about {}.",
    "Write a short story about {}.",
    "Write an email to a colleague about {}.",
    "Give arguments for and against {}.",
    "Tell me the most important facts about {}.",
    "What is known about {}, and how do we know it?",
    "You are an expert on {}. Answer a beginner's question about it.",
    "Write a Python function that has to do with {}, and explain it.",
)
ASKED: Final = (
    "Who first wrote about {}?",
    "When did people first hear of {}?",
    "Where in the world is {} most important?",
    "What is {}?",
    "Why does {} matter?",
    "How long ago was {} first known?",
    "What is the name of a famous book about {}?",
)
SUMS: Final = (
    "{a} boxes hold {b} apples each. {c} apples are rotten and are thrown away. How many apples are left?",
    "A ticket costs ${b}. A family buys {a} tickets and has a voucher of ${c}. How much does the family pay?",
    "Maria reads {b} pages a day for {a} days. The book has {d} pages. How many pages are left to read?",
    "A car drives {b} miles an hour for {a} hours and then {c} more miles. How many miles does it drive in all?",
    "Peter earns ${b} an hour. He works {a} hours on Monday and half as many on Tuesday. How much does he earn?",
    "A class has {d} pupils. {c} of them are ill, and the rest form groups of {a}. How many groups are there?",
    "A baker makes {b} rolls every morning and sells all but {a} of them at $2 each. How much does he take in {c} days?",
    "There are {d} seats in a hall. {b} are taken in the first hour and {c} in the second. What share of them is still free?",
)
SUMMARIES: Final = (
    "Summarize: {}",
    "Summarize the following article in a few sentences.\n\n{}",
    "{}\n\nGive a short summary of the text above.",
)
INTO_GERMAN: Final = "Translate into German: "
REWRITINGS: Final = (
    "Rewrite this text in simpler words:\n\n{}",
    "List the names, places and dates in this text:\n\n{}",
    INTO_GERMAN + "{}",
    "Translate into French: {}",
    "Correct the mistakes in this text: {}",
)


def from_topics(topics: list[str], draw: random.Random) -> Iterator[str]:
    """Yield requests without end: most to write about a topic, the others short questions and sums."""
    while True:
        kind = draw.random()
        if kind < 0.6:
            yield draw.choice(FORMS).format(draw.choice(topics))
        elif kind < 0.75:
            yield draw.choice(ASKED).format(draw.choice(topics))
        else:
            a, b, c = draw.randint(2, 12), draw.randint(10, 60), draw.randint(2, 9)
            yield draw.choice(SUMS).format(a=a, b=b, c=c, d=a * b + c)


def from_texts(texts: list[str], draw: random.Random) -> Iterator[str]:
    """Yield requests about texts without end: summaries, questions about several passages, and rewritings."""
    while True:
        kind = draw.random()
        if kind < 0.4:
            yield draw.choice(SUMMARIES).format(_beginning(draw.choice(texts), draw.randint(120, 320)))
        elif kind < 0.8:
            passages = [_beginning(one, draw.randint(60, 110)) for one in draw.sample(texts, 3)]
            shown = "\n\n".join(f"Passage {number}: {text}" for number, text in enumerate(passages, 1))
            yield f"Use the passages to answer the question.\n\n{shown}\n\nQuestion: {_question(draw.choice(passages), draw)}"
        else:
            yield draw.choice(REWRITINGS).format(_beginning(draw.choice(texts), draw.randint(15, 60)))


def from_sentences(texts: list[str], draw: random.Random) -> Iterator[str]:
    """Yield requests without end to put sentences into German."""
    while True:
        sentence = draw.choice(draw.choice(texts).split(". ")).strip()
        if 5 <= len(sentence.split()) <= 30:
            yield f"{INTO_GERMAN}{sentence}"


def from_german(texts: list[str], draw: random.Random) -> Iterator[str]:
    """Yield requests without end to put what the model takes for German into English."""
    while True:
        yield draw.choice(("Translate German to English: {}", "Translate into English: {}")).format(draw.choice(texts))


def _beginning(text: str, words: int) -> str:
    """Return the whole paragraphs, or else sentences, that `words` words reach."""
    cut = " ".join(text.split(" ")[:words])
    return cut[: cut.rfind(".") + 1] or cut


def _question(passage: str, draw: random.Random) -> str:
    """Return a question about the passage, in words of its first sentence."""
    said = passage.split(". ")[0].strip().rstrip(".").replace("\n", " ")
    return draw.choice(("What does the text say about this: {}?", "Is this true: {}?", "Why: {}?")).format(said[:120])


def lines(requests: Iterator[str], count: int) -> Iterator[str]:
    """Yield `count` requests, each once, as lines of JSON; fewer where hardly anything new comes."""
    seen: set[str] = set()
    for request in itertools.islice(requests, 100 * count):
        if len(seen) == count:
            return
        if request not in seen:
            seen.add(request)
            yield json.dumps({"messages": [{"role": "user", "content": request}]}, ensure_ascii=False)


def _texts(path: Path) -> list[str]:
    """Return the longer answers of a file of chats."""
    return [answer for _, answer in _asked(path) if len(answer.split()) >= 60 and "```" not in answer]


def _german(path: Path) -> list[str]:
    """Return the first lines of what was said where German was asked for."""
    said = [answer.split("\n")[0] for request, answer in _asked(path) if request.startswith(INTO_GERMAN)]
    return [one for one in said if 4 <= len(one.split()) <= 60]


def _asked(path: Path) -> list[tuple[str, str]]:
    """Return the first request of every chat of a file, and its answer."""
    chats = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    return [(chat[0]["content"], chat[1]["content"]) for chat in chats]


def requests(kind: str, path: Path, draw: random.Random) -> Iterator[str]:
    """Return requests of a kind without end, from a file of topics or of chats."""
    if kind == "topics":
        return from_topics(path.read_text(encoding="utf-8").splitlines(), draw)
    if kind == "german":
        return from_german(_german(path), draw)
    return {"texts": from_texts, "sentences": from_sentences}[kind](_texts(path), draw)


if __name__ == "__main__":
    kind, seed, count, file = sys.argv[1:]
    print(*lines(requests(kind, Path(file), random.Random(int(seed))), int(count)), sep="\n")
