"""What can be set of a drafter, and which settings are looked at."""

from pathlib import Path

import pytest

import outrider
from outrider.errors import InputError, UnknownDrafterError
from outrider.tune.settings import Space

CHANCES = [[0.6, 0.1, 0.05], [0.5, 0.1, 0.05], [0.4, 0.1], [0.3, 0.1]]
THIRD = """
from pydantic import Field
import outrider

class Options(outrider.DrafterOptions):
    depth: int = Field(default=3, ge=1, le=5)
    colour: str = "red"

class Third(outrider.RowDrafter[Options]):
    name = "third"
    requires_api = (0, 1)
    Options = Options

    def propose_row(self, view):
        return outrider.DraftTree.chain([1] * min(self.options.depth, view.max_depth))
"""


def test_names_are_found_in_the_options() -> None:
    tunable = {name: Space.of(name).tunable for name in ("ngram", "self", "eagle3", "medusa", "lookahead")}
    assert tunable == {
        "ngram": ("draft_tokens", "nodes", "branching"),
        "self": ("draft_tokens", "nodes", "branching"),
        "eagle3": ("depth", "nodes", "branching"),
        "medusa": ("depth", "nodes"),
        "lookahead": (),
    }
    assert Space.of("cascade[ngram,lookahead]").tunable == ()
    assert Space.of("cascade[ngram,lookahead,mode=merge]").tunable == ("nodes",)


def test_a_third_partys_bounds_hold(tmp_path: Path) -> None:
    file = tmp_path / "third.py"
    file.write_text(THIRD)
    space = Space.of(f"{file}::Third[colour=blue]")
    assert space.tunable == ("depth",)
    assert [one.options for one in space.anchors()] == [{"colour": "blue", "depth": 5}, {"colour": "blue", "depth": 2}]
    assert [one.depth for one in space.grid(CHANCES, 5)] == [1, 2, 3, 4, 5]
    assert space.grid(CHANCES, 2)[-1].word == {"name": f"{file}::Third", "options": {"colour": "blue", "depth": 2}}


@pytest.mark.parametrize(
    "name", [record.name for record in outrider.drafters() if record.name not in ("cascade", "none")]
)
def test_every_setting_is_one_that_the_drafter_takes(name: str) -> None:
    space = Space.of(name)
    found = [*space.anchors(), *space.grid(CHANCES, 4), *space.grid([], 0), *space.grid([[0.2]], 1)]
    assert found
    for one in found:
        outrider.plugins.words.choose(one.word)
        assert one.most >= 1
    assert len({one.label for one in space.grid(CHANCES, 4)}) == len(space.grid(CHANCES, 4))


def test_trees_are_as_wide_as_the_recurrence_makes_them() -> None:
    trees = [one for one in Space.of("eagle3").grid(CHANCES, 4) if one.branching != 1]
    assert {one.branching for one in trees} <= {2, 3}
    # Where siblings never hold, all that is left are chains.
    assert {one.branching for one in Space.of("eagle3").grid([[0.9, 0.0]] * 4, 4)} == {1}


def test_wrong_words_are_refused() -> None:
    with pytest.raises(UnknownDrafterError, match="ngrm"):
        Space.of("ngrm")
    with pytest.raises(InputError, match="'none' is plain decoding"):
        Space.of("none")
    with pytest.raises(InputError, match="color"):
        Space.of("ngram[color=red]")
