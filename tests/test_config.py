from pathlib import Path

import pytest

import outrider
from outrider.config import load_config
from outrider.plugins.words import DrafterChoice

GOOD = """
[target]
model = "smollm2"
dtype = "float32"

[drafter]
name = "ngram"

[drafter.options]
max_n = 3

[generation]
max_new_tokens = 20
temperature = 0
seed = 5
"""

NESTED = """
[drafter]
name = "cascade"

[drafter.options]
mode = "merge"

[[drafter.options.drafters]]
name = "ngram"

[drafter.options.drafters.options] # of the first
max_n = 3

[[drafter.options.drafters]]
name = "lookahead"


[drafter.options.drafters.options]
window = 5
"""


def _write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "outrider.toml").write_text(text)
    return tmp_path / "outrider.toml"


def test_a_whole_file(tmp_path: Path) -> None:
    config = load_config(_write(tmp_path, GOOD))
    assert config.target.model == "smollm2"
    assert config.drafter_choice == DrafterChoice("ngram", {"max_n": 3})
    assert config.generation.max_new_tokens == 20
    assert config.generation.temperature == 0


def test_everything_may_be_left_out(tmp_path: Path) -> None:
    config = load_config(_write(tmp_path, ""))
    assert config.drafter_choice is None
    assert config.target.model is None


def test_vllm_s_shape_is_accepted(tmp_path: Path) -> None:
    config = load_config(_write(tmp_path, '[drafter]\nmethod = "ngram"\nnum_speculative_tokens = 4\n'))
    assert config.drafter_choice == DrafterChoice("ngram", {"draft_tokens": 4})


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[target]\nmodel = "x\n', 2, 'in `model = "x`'),
        ("[generation]\ntemperature = 0\ntemperature = 1\n", 3, "temperature"),
        ("[generation\n", 1, "in `[generation`"),
        (
            "[generation]\nseed = 1\nmax_new_token = 3\n",
            3,
            "key 'generation.max_new_token'. Did you mean 'max_new_tokens'",
        ),
        ("\n[draftre]\n", 2, "unknown key 'draftre'. Did you mean 'drafter'"),
        ("\n[drafters]\n", 2, "key drafters: write [[drafters]], a table for every drafter"),
        ('[[drafters]]\nname = "ngram"\n[[drafters]]\nname = "ngrm"\n', 4, "Did you mean 'ngram'?"),
        ("[target]\n\ndtype = 3\n", 3, "key target.dtype = 3"),
        ('[generation]\nmax_new_tokens = "many"\n', 2, "key generation.max_new_tokens = 'many'"),
        ('[drafter]\nname = "ngram"\nmax_n = 3\n', 1, "unknown key 'max_n'"),
        ("drafter = 3\n", 1, "key drafter = 3"),
        ('[drafter]\n\nname = "ngrm"\n', 3, "unknown drafter 'ngrm'. Did you mean 'ngram'"),
        ('[drafter]\nname = "ngram"\n[drafter.options]\nmax_m = 3\n', 4, "drafter 'ngram': unknown option 'max_m'"),
        (NESTED.replace("max_n = 3", "max_m = 3"), 12, "option drafters.0: drafter 'ngram': unknown option 'max_m'"),
        (NESTED.replace("window = 5", "window = 1"), 19, "option drafters.1: drafter 'lookahead': option window = 1"),
        (NESTED.replace('"lookahead"', '"lokahead"'), 14, "option drafters.1: unknown drafter 'lokahead'"),
        (NESTED.replace('"lookahead"', "3"), 14, "option drafters.1: drafter: write name ="),
        (NESTED.replace('"merge"', '"best"'), 6, "drafter 'cascade': option mode = 'best'"),
        ('[drafter]\nname = "cascade"\n[drafter.options]\ndrafters = [\n  "ngram[a=1]",\n]\n', 4, "'a'"),
    ],
)
def test_a_broken_file_is_told_by_line_and_key(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(outrider.ConfigError) as error:
        load_config(_write(tmp_path, text))
    assert f"outrider.toml:{line}: " in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_parts_of_a_cascade_are_nested_the_same_way(tmp_path: Path) -> None:
    choice = load_config(_write(tmp_path, NESTED)).drafter_choice
    parts = [{"name": "ngram", "options": {"max_n": 3}}, {"name": "lookahead", "options": {"window": 5}}]
    assert choice == DrafterChoice("cascade", {"mode": "merge", "drafters": parts})
    text = '[drafter]\nname = "cascade"\n[drafter.options]\ndrafters = ["ngram", "lookahead[window=5]"]\n'
    choice = load_config(_write(tmp_path, text)).drafter_choice
    assert choice == DrafterChoice("cascade", {"drafters": ["ngram", "lookahead[window=5]"]})
    assert len(outrider.choose(choice.name, choice.options)[1].drafters) == 2  # type: ignore[attr-defined]


def test_what_flags_may_still_mend_is_not_refused(tmp_path: Path) -> None:
    load_config(_write(tmp_path, '[drafter]\nname = "cascade"\n'))
    load_config(_write(tmp_path, '[drafter]\nname = "ngram"\n[drafter.options]\nmin_n = 8\n'))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(outrider.ConfigError, match=r"none.toml can't be read"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(outrider.ConfigError, match="can't be read"):
        load_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'[target]\nmodel = "\xe9"\n')
    with pytest.raises(outrider.ConfigError, match="can't be read"):
        load_config(tmp_path / "latin.toml")


def test_several_drafters_are_listed_in_their_order(tmp_path: Path) -> None:
    text = '[drafter]\nname = "ngram"\n[[drafters]]\nname = "lookahead"\n[drafters.options]\nwindow = 5\n'
    text += '[[drafters]]\nmethod = "ngram"\n'
    found = load_config(_write(tmp_path, text))
    assert found.choices == [DrafterChoice("ngram"), DrafterChoice("lookahead", {"window": 5}), DrafterChoice("ngram")]
