"""From an empty folder with the built wheel alone to a plugin that is listed, runs and passes its tests."""

import json
import re
import shutil
from pathlib import Path

from environments import Environment
from pages import commands, packaging


def generate(model: Path, drafter: str) -> list[str]:
    fixed = ["--dtype", "float64", "--max-new-tokens", "24", "--no-adaptive", "--json"]
    return ["generate", "-m", str(model), "-p", "abcabcabc", "-d", drafter, *fixed]


def test_a_newcomer_s_plugin(environment: Environment, model_folder: Path, tmp_path: Path) -> None:
    """By the commands of the tutorial."""
    where = environment.python(
        "-c", "import outrider, outrider_drafters as d; print(outrider.__file__, d.__file__)", cwd=tmp_path
    )
    assert where.out.count(str(environment.site)) == 2

    done = environment.shell("\n".join(commands(packaging(), model_folder)), tmp_path)
    assert done.status == 0, done.out + done.err
    assert re.search(r"\b2\d passed, 6 skipped", done.out), done.out
    assert [one.name for one in (tmp_path / "dist").iterdir()] == ["outrider_foo-0.1.0-py3-none-any.whl"]

    drafters, alone, plain, checked = environment.several(
        ["drafters", "--json"],
        generate(model_folder, "foo"),
        generate(model_folder, "none"),
        ["check", "foo"],
        cwd=tmp_path,
    )
    (record,) = [one for one in json.loads(drafters.out) if one["name"] == "foo"]
    assert (record["distribution"], record["version"], record["status"]) == ("outrider-foo", "0.1.0", "loaded")
    assert record["location"].startswith(str(environment.site / "outrider_foo.py:"))
    assert (record["drafts"], record["sampling"], record["requires"]) == ("chains", "chosen", "")

    assert (alone.status, alone.err) == (0, "")
    assert json.loads(alone.out)["stats"]["num_accepted_draft_tokens"] > 0
    assert json.loads(alone.out)["token_ids"] == json.loads(plain.out)["token_ids"]
    assert (checked.status, checked.err) == (0, ""), checked.out
    assert "failed" not in checked.out.splitlines()[-1]


def test_without_the_built_ins_there_is_an_outrider_without_drafters(
    environment: Environment, model_folder: Path
) -> None:
    """Their entry points are taken out of the installed wheel, and then the drafters themselves."""
    (points,) = environment.site.glob("outrider-*.dist-info/entry_points.txt")
    points.write_text("[console_scripts]\noutrider = outrider.__main__:main\n")
    shutil.rmtree(environment.site / "outrider_drafters")
    drafters, plugins, plain, ngram = environment.several(
        ["drafters", "--json"],
        ["plugins", "--json"],
        generate(model_folder, "none"),
        generate(model_folder, "ngram"),
        cwd=environment.folder,
    )
    assert [one["name"] for one in json.loads(drafters.out)] == ["none"]
    assert json.loads(plugins.out) == []
    assert (plain.status, plain.err) == (0, "")
    assert len(json.loads(plain.out)["token_ids"]) == 24
    assert (ngram.status, ngram.err) == (2, "error: unknown drafter 'ngram'. Drafters: none.\n")
