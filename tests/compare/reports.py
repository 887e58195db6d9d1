"""Comparisons made up for the tests of reports, and what reads a report."""

import base64
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from outrider.compare.files import read
from outrider.compare.pooled import with_figures
from outrider.compare.result import Comparison, Prompt, Row, Run, Steps

DATA: Final = Path(__file__).parent / "data" / "run.json"
HOSTILE: Final = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    '" onmouseover="alert(1)',
    "\x1b[31mred\x1b[0m",
    "\x00",
    "\ud800",
    "\u202eesrever",
    "a\nb\tc\r",
    "&amp; & <!--",
    "\u2028\ufeff\x85",
)
VOID: Final = frozenset({"meta", "input", "br"})


def saved() -> Comparison:
    """A real one, of a tiny model."""
    return read(DATA)


def made_up(prompts: int, rows: Sequence[str], tokens: int, pieces: Sequence[str] = ("ab", " cd", "\n")) -> Comparison:
    """One of any size with its figures: every row has the same texts, and drafts of its own."""
    return with_figures(without_figures(prompts, rows, tokens, pieces))


def big(rows: Sequence[str]) -> Comparison:
    """One of 240 prompts by 128 tokens, with the figures of a small one, which would take long to work out."""
    small = made_up(3, rows, 12)
    pieces = [f" w{at}" for at in range(500)]
    return replace(without_figures(240, rows, 128, pieces), figures=small.figures)


def without_figures(prompts: int, rows: Sequence[str], tokens: int, pieces: Sequence[str]) -> Comparison:
    """The same without its figures."""
    chance = random.Random(1)
    texts = [tuple(chance.randrange(9000) for _ in range(tokens)) for _ in range(prompts)]
    base = saved()
    plain = replace(base.rows[0], name=rows[0], baseline=rows[0])
    drafting = [replace(base.rows[1], name=name, baseline=rows[0]) for name in rows[1:]]
    found = [_run(chance, row, prompt, text, pieces) for prompt, text in enumerate(texts) for row in (plain, *drafting)]
    return replace(
        base,
        settings=replace(base.settings, repeats=1),
        prompts=tuple(_prompt(at, pieces[at % len(pieces)]) for at in range(prompts)),
        rows=(plain, *drafting),
        runs=tuple(found),
        figures=(),
    )


def _prompt(at: int, text: str) -> Prompt:
    return Prompt(
        index=at,
        name=f"p{at} {text}",
        conversation=f"c{at}",
        turn=0,
        category=f"k{at % 3}",
        digest="0",
        tokens=9,
        text=text,
    )


def _run(chance: random.Random, row: Row, prompt: int, text: tuple[int, ...], pieces: Sequence[str]) -> Run:
    left, emitted, path, drafted = len(text) - 1, [], [], []
    while left:
        nodes = 0 if row.kind == "plain" else chance.choice((0, 7, 7, 7))
        held = min(chance.randrange(5), left) if nodes else 0
        emitted.append(min(left, held + 1))
        path.append(tuple(range(held)))
        drafted.append(nodes)
        left -= emitted[-1]
    zeros = (0,) * len(emitted)
    seconds = tuple(round(chance.uniform(0.02, 0.04), 7) for _ in emitted)
    rejected = tuple((1, 2, 3) if nodes else () for nodes in drafted)
    steps = Steps(
        emitted=tuple(emitted),
        drafted=tuple(drafted),
        scouts=zeros,
        depth=tuple(drafted),
        asked=tuple(map(len, path)),
        path=tuple(path),
        rejected=rejected,
        rejected_text=tuple(chance.choice(pieces) + "yz" if one else "" for one in rejected),
        paused=zeros,
        seconds=seconds,
        draft_seconds=tuple(one * 0.1 for one in seconds),
        target_seconds=tuple(one * 0.7 for one in seconds),
        verify_seconds=tuple(one * 0.15 for one in seconds),
    )
    return Run(
        row=row.name,
        prompt=prompt,
        repeat=0,
        group=prompt,
        seed=1,
        token_ids=text,
        pieces=tuple(pieces[one % len(pieces)] for one in text),
        prefill_tokens=1,
        prefill_seconds=0.1,
        seconds=0.1 + sum(seconds),
        draft_seconds=sum(steps.draft_seconds),
        target_seconds=sum(steps.target_seconds),
        verify_seconds=sum(steps.verify_seconds),
        steps=steps,
        partings=(),
    )


@dataclass(slots=True)
class Node:
    """An element of a page."""

    tag: str
    attributes: dict[str, str | None]
    inside: "list[Node | str]" = field(default_factory=list)

    def every(self) -> "Iterator[Node]":
        """Itself and what is in it."""
        yield self
        for one in self.inside:
            if isinstance(one, Node):
                yield from one.every()

    def all(self, tag: str, kind: str = "") -> "list[Node]":
        """Elements of a tag, and of a class."""
        return [
            one for one in self.every() if one.tag == tag and kind in ("", *(one.attributes.get("class") or "").split())
        ]

    def by_id(self, name: str) -> "Node":
        """The element of an id."""
        (found,) = [one for one in self.every() if one.attributes.get("id") == name]
        return found

    def has(self, name: str) -> bool:
        """Whether there is an element of an id."""
        return any(one.attributes.get("id") == name for one in self.every())

    @property
    def text(self) -> str:
        """Its words, with single spaces."""
        return " ".join(self.raw.split())

    @property
    def raw(self) -> str:
        """Its words as they are."""
        return "".join(one if isinstance(one, str) else one.raw for one in self.inside)

    def lines(self) -> list[list[str]]:
        """The cells of a table's body."""
        (body,) = self.all("tbody")
        return [[cell.text for cell in line.inside if isinstance(cell, Node)] for line in body.all("tr")]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self.open[-1].inside.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        node = self.open.pop()
        assert node.tag == tag, f"<{node.tag}> is ended by </{tag}>"

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def parsed(page: str) -> Node:
    """A page as a tree; every element must be ended where it belongs."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def token_data(page: Node) -> Any:
    """What the token view reads."""
    return json.loads(gzip.decompress(base64.b64decode(page.by_id("data").raw)))
