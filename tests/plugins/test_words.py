import sys
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.plugins.words import DrafterChoice, make_drafter, read_mapping, read_options, read_word
from support import Scripted, prompt_of, tiny_target

FILE = """
import outrider

class Repeat(outrider.RowDrafter):
    '''Proposes the last token again.'''

    name = "repeat"
    requires_api = (0, 1)

    def propose_row(self, view):
        return outrider.DraftTree.chain([view.ids[-1]] * min(2, view.max_depth))

class Nameless(outrider.RowDrafter):
    requires_api = (0, 1)

    def propose_row(self, view):
        return outrider.DraftTree()
"""


@pytest.mark.parametrize(
    ("word", "choice"),
    [
        ("ngram", DrafterChoice("ngram")),
        (" ngram[max_n=4] ", DrafterChoice("ngram", {"max_n": 4})),
        ("ngram[max_n=4, min_n=2]", DrafterChoice("ngram", {"max_n": 4, "min_n": 2})),
        ("dist/name[a=x,b=1.5,c=true,d='q']", DrafterChoice("dist/name", {"a": "x", "b": 1.5, "c": True, "d": "q"})),
        ("ngram[]", DrafterChoice("ngram")),
        ("dir/file.py::Class[heads=a/b]", DrafterChoice("dir/file.py::Class", {"heads": "a/b"})),
        ("x[a=[1,2],b=[[1], [2, 3]]]", DrafterChoice("x", {"a": [1, 2], "b": [[1], [2, 3]]})),
        ("x[a={b = 1, c = [2, 3]},d=4]", DrafterChoice("x", {"a": {"b": 1, "c": [2, 3]}, "d": 4})),
        ('x[a=\'p,q]\',b="r\\",[s",c=1]', DrafterChoice("x", {"a": "p,q]", "b": 'r",[s', "c": 1})),
        ("x[a=it's,b=6 o'clock]", DrafterChoice("x", {"a": "it's", "b": "6 o'clock"})),
        ("x[a=b=c]", DrafterChoice("x", {"a": "b=c"})),
        ("x[a=[p,q[r=1,s=2]]]", DrafterChoice("x", {"a": ["p", "q[r=1,s=2]"]})),
        ("cascade[ngram,lookahead]", DrafterChoice("cascade", {"drafters": ["ngram", "lookahead"]})),
        (
            "cascade[ngram[max_n=3,min_n=1], draft-model[model=a/b,draft_tokens=3] ,mode=merge]",
            DrafterChoice(
                "cascade",
                {"drafters": ["ngram[max_n=3,min_n=1]", "draft-model[model=a/b,draft_tokens=3]"], "mode": "merge"},
            ),
        ),
        (
            "cascade[cascade[a,b[c=[d,e]]],{name = 'f', options = {g = 1}}]",
            DrafterChoice("cascade", {"drafters": ["cascade[a,b[c=[d,e]]]", {"name": "f", "options": {"g": 1}}]}),
        ),
        ("cascade[drafters=[ngram,x[a=1]]]", DrafterChoice("cascade", {"drafters": ["ngram", "x[a=1]"]})),
        ("cascade[drafters=['ngram','x[a=1]']]", DrafterChoice("cascade", {"drafters": ["ngram", "x[a=1]"]})),
    ],
)
def test_words(word: str, choice: DrafterChoice) -> None:
    assert read_word(word) == choice


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "drafter '': its name is missing; write NAME"),
        ("[a=1]", "its name is missing"),
        ("ngram[max_n=4", r"it must end with '\]'"),
        ("ngram[max_n=4]x", r"it must end with '\]'"),
        ("ngram]", r"a '\]' closes nothing"),
        ("ngram[a=1][b=2]", r"a '\]' closes nothing"),
        ("cascade[a[b=1,c]", r"a '\]' is missing"),
        ("cascade[a,b]]", r"a '\]' closes nothing"),
        ("x[a={b]]", r"a '\]' closes nothing"),
        ("x[a={b = 1]", "a '}' is missing"),
        ("ngram[max_n]", "option 'max_n': write key=value"),
        ("ngram[x[a=1]]", r"option 'x\[a=1\]': write key=value"),
        ("ngram[=4]", "option '=4': write key=value"),
        ("ngram[a=1,a=2]", "option 'a' is given twice"),
        ("cascade[ngram,drafters=[x,y]]", "option 'drafters' of drafter 'cascade' is given twice"),
        ("cascad[ngram,lookahead]", "unknown drafter 'cascad'. Did you mean 'cascade'"),
    ],
)
def test_malformed_words(word: str, message: str) -> None:
    with pytest.raises(outrider.InputError, match=message) as error:
        read_word(word)
    assert "\n" not in str(error.value)


class Pair(Scripted):
    """A drafter of a third party that takes items without a key."""

    name = "pair"

    class Options(outrider.DrafterOptions):
        positional = "parts"
        parts: list[str] = []


def test_a_third_party_s_options_may_take_items_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"import sys\nPair = sys.modules[{__name__!r}].Pair\n")
    word = f"{tmp_path}/mine.py::Pair"
    assert read_word(f"{word}[a,b[c=1]]").options == {"parts": ["a", "b[c=1]"]}
    assert outrider.choose(f"{word}[a]")[1].model_dump() == {"parts": ["a"]}


class Shaped(Scripted):
    """A drafter of a third party with tuples in every place."""

    name = "shaped"

    class Options(outrider.DrafterOptions):
        pair: tuple[int, str] = (0, "")
        deep: tuple[tuple[int, ...], ...] | None = None
        named: dict[str, int] = {}
        listed: list[int] = []


def test_a_list_serves_where_an_option_is_a_tuple() -> None:
    given = {"pair": [1, "a"], "deep": [[1, 2], []], "listed": [1], "named": {"a": 1}}
    options = outrider.choose(Shaped, given)[1].model_dump()
    assert options == {"pair": (1, "a"), "deep": ((1, 2), ()), "listed": [1], "named": {"a": 1}}
    for wrong in (
        {"pair": [1]},
        {"pair": [1, "a", 2]},
        {"pair": ["a", 1]},
        {"deep": [1]},
        {"deep": "x"},
        {"listed": (1,)},
    ):
        with pytest.raises(outrider.InputError, match=f"option '?{next(iter(wrong))}"):
            outrider.choose(Shaped, wrong)


@pytest.mark.parametrize(
    "parts",
    [
        ["ngram[max_n=3]", "none"],
        [{"name": "ngram", "options": {"max_n": 3}}, {"name": "none"}],
        [{"method": "ngram", "prompt_lookup_max": 3}, "outrider/lookahead"],
        ("ngram[max_n=3]", "cascade[none,lookahead]"),
    ],
)
def test_parts_in_every_form(parts: Any) -> None:
    drafter: Any = make_drafter("cascade", {"drafters": parts}, tiny_target().info)
    assert drafter.parts[0].drafter.options.max_n == 3
    assert len(drafter.parts) == 2


def test_options_given_twice_are_refused() -> None:
    with pytest.raises(outrider.InputError, match="'a' is given twice"):
        read_options(["a=1", "a=2"])
    with pytest.raises(outrider.InputError, match="option 'max_n' of drafter 'ngram' is given twice"):
        outrider.generate(tiny_target(), [1], "ngram[max_n=3]", {"max_n": 4})


def test_vllm_s_shape_is_an_alias() -> None:
    mapping = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 5}
    assert read_mapping(mapping) == DrafterChoice("ngram", {"draft_tokens": 4, "min_n": 2, "max_n": 5})
    assert read_mapping({"method": "draft_model", "model": "x"}) == DrafterChoice("draft-model", {"model": "x"})
    found = read_mapping({"method": "eagle3", "model": "x", "num_speculative_tokens": 3})
    assert found == DrafterChoice("eagle3", {"heads": "x", "depth": 3})
    assert read_mapping({"method": "nobody", "model": "x"}) == DrafterChoice("nobody", {"model": "x"})
    assert read_mapping({"name": "ngram", "options": {"max_n": 3}}) == DrafterChoice("ngram", {"max_n": 3})
    result = outrider.generate(tiny_target(0, 0.1), prompt_of(9), mapping, max_new_tokens=20, adaptive=False)
    assert result.drafter == "ngram"
    assert len(result.stats.acceptance_histogram) <= 5


@pytest.mark.parametrize("mapping", [{}, {"name": 3}, {"name": "ngram", "max_n": 3}, {"name": "ngram", "options": 3}])
def test_other_mappings_are_refused(mapping: dict[str, Any]) -> None:
    with pytest.raises(outrider.InputError, match="write name ="):
        read_mapping(mapping)


def test_an_unknown_drafter_gets_the_nearest_and_the_list() -> None:
    with pytest.raises(
        outrider.UnknownDrafterError, match=r"unknown drafter 'ngrm'. Did you mean 'ngram'\? Drafters: .*none"
    ):
        outrider.generate(tiny_target(), [1], "ngrm")
    with pytest.raises(outrider.UnknownDrafterError, match=r"unknown drafter 'promt_lookup'.* Drafters: .*ngram"):
        outrider.generate(tiny_target(), [1], "promt_lookup")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"draft_tokenss": 4},
            r"unknown option 'draft_tokenss'. Did you mean 'draft_tokens'\? Known: branching, corpus, draft_tokens",
        ),
        ({"draft_tokens": 0}, r"option draft_tokens = 0: .*greater than or equal to 1"),
        ({"draft_tokens": -1}, r"option draft_tokens = -1"),
        ({"draft_tokens": 2.5}, r"option draft_tokens = 2.5"),
        ({"draft_tokens": "5"}, r"option draft_tokens = '5'"),
        ({"draft_tokens": None}, r"option draft_tokens = None"),
        ({"draft_tokens": True}, r"option draft_tokens = True"),
        ({"min_n": 5, "max_n": 2}, r"min_n = 5 is more than max_n = 2"),
        ({"branching": 0}, r"option branching = 0"),
        ({"nodes": 0}, r"option nodes = 0"),
    ],
)
def test_a_bad_option_gets_its_name_and_what_is_allowed(options: dict[str, Any], message: str) -> None:
    """Case 30."""
    with pytest.raises(outrider.InputError, match=f"drafter 'ngram': .*{message}") as error:
        outrider.generate(tiny_target(), [1], "ngram", options)
    assert "\n" not in str(error.value)


BESIDE = """
from __future__ import annotations

from dataclasses import dataclass, field

import outrider
from beside_{number} import NAME


@dataclass
class State:
    seen: list[int] = field(default_factory=list)


class Options(outrider.DrafterOptions):
    size: int = 3


class Mine(outrider.RowDrafter[Options]):
    name = NAME
    requires_api = (0, 1)
    Options = Options

    def propose_row(self, view):
        assert self.options.size == {number}
        return outrider.DraftTree()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path / "mine.py"


def test_a_class_in_a_file_is_a_drafter(file: Path) -> None:
    target = tiny_target(1, 0.1)
    result = outrider.generate(target, prompt_of(6), f"{file}::Repeat", max_new_tokens=30, adaptive=False)
    assert result.drafter == "repeat"
    assert result.token_ids == outrider.generate(target, prompt_of(6), "none", max_new_tokens=30).token_ids
    assert result.stats.num_draft_tokens > 0


@pytest.mark.parametrize(
    ("class_name", "message"),
    [("Missing", "has no class Missing"), ("Nameless", "name = None"), ("outrider", "no subclass")],
)
def test_a_class_that_is_no_drafter_is_named(file: Path, class_name: str, message: str) -> None:
    with pytest.raises(outrider.InputError, match=message):
        outrider.generate(tiny_target(), [1], f"{file}::{class_name}")


def test_a_file_imports_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    for number in (1, 2):
        (tmp_path / f"dir{number}").mkdir()
        (tmp_path / f"dir{number}" / f"beside_{number}.py").write_text(f"NAME = 'beside-{number}'\n")
        (tmp_path / f"dir{number}" / "mine.py").write_text(BESIDE.format(number=number))
    for number in (1, 2):
        result = outrider.generate(
            tiny_target(), [1], f"{tmp_path}/dir{number}/mine.py::Mine", {"size": number}, max_new_tokens=4
        )
        assert result.drafter == f"beside-{number}"


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(outrider.InputError, match="is not there"):
        outrider.generate(tiny_target(), [1], f"{tmp_path}/none.py::Class")
    (tmp_path / "broken.py").write_text("def")
    with pytest.raises(outrider.InputError, match="SyntaxError"):
        outrider.generate(tiny_target(), [1], f"{tmp_path}/broken.py::Class")


def test_a_drafter_whose_constructor_raises_is_named() -> None:
    class Raises(Scripted):
        name = "raises"

        def __init__(self, *_: Any) -> None:
            raise RuntimeError("no weights")

    with pytest.raises(outrider.DrafterError, match="drafter 'raises' can't be made: RuntimeError: no weights"):
        make_drafter(Raises, None, tiny_target().info)
