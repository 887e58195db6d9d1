"""Training every drafter that can be trained, on a tiny target: from zero to acceptance, broken off and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import outrider
from outrider import InputError, Trains, TrainStart
from outrider.draft.training import TrainBatch, Trainee
from outrider.train.batches import plan
from outrider.train.evaluation import measure
from outrider.train.examples import Example
from outrider.train.run import Job, _read, read_train_options, train, trainable
from outrider.train.trainer import Figures, Trainer, TrainSettings
from support import lively
from train.chatty import target, write_chats

TRAINED = [one.name for one in outrider.drafters() if isinstance(one.drafter, Trains)]
OPTIONS: dict[str, dict[str, Any]] = {
    "eagle3": {"layers": (0, 1), "draft_vocab": 48},
    "eagle": {"feature_weight": 0.1},
    "medusa": {"heads": 2, "layers": 4, "draft_vocab": 48},
    "draft-model": {"layers": (1,), "from_target": False},
}
# One guess at a depth: with several a random head would be right now and then.
DRAFTED: dict[str, dict[str, Any]] = {
    "eagle": {"branching": 1},
    "eagle3": {"branching": 1},
    "medusa": {"branching": 1},
    "draft-model": {},
}
SETTINGS = TrainSettings(epochs=14, rate=1e-2, batch_tokens=1024, accumulate=1)
SHORT = replace(SETTINGS, epochs=2, rate=1e-3, batch_tokens=256, accumulate=2)


def job(drafter: str, data: Path, out: Path, settings: TrainSettings = SETTINGS, **changes: Any) -> Job:
    made = Job(
        drafter, "tiny", (data,), out, OPTIONS[drafter], settings, states=data.parent / f"states-{drafter}", prompts=0
    )
    return replace(made, **changes)


def run(job: Job, report: Callable[[Figures], None] | None = None) -> list[Figures]:
    figures: list[Figures] = []
    train(target(), job, lambda line: None, report or figures.append)
    return figures


def accepted(drafter: str, folder: Path) -> float:
    """How often the first token of a draft is accepted on new prompts, through the verifier."""
    options = {trainable(drafter).trained_as: str(folder)} | DRAFTED[drafter]
    prompts: list[Any] = [[{"role": "user", "content": f"w{one} w{one + 7}"}] for one in range(6)]
    return (measure(target(), drafter, options, prompts, 24).by_depth or (0.0,))[0]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def made(drafter: str, counts: torch.Tensor | None = None) -> Trainee:
    learnt = torch.ones(target().info.vocab_size, dtype=torch.long) if counts is None else counts
    kind = trainable(drafter)
    found: Trainee = kind.trainee(TrainStart(target().info, "tiny", learnt), read_train_options(kind, OPTIONS[drafter]))
    return found


def batch_of(answers: list[list[bool]], trainee: Trainee) -> TrainBatch:
    ids = torch.randint(6, 60, (len(answers), len(answers[0])), generator=torch.Generator().manual_seed(0))
    output = target().model(input_ids=ids, output_hidden_states=True, use_cache=False)
    states = {layer: output.hidden_states[layer].detach() for layer in trainee.layers}
    return TrainBatch(ids, torch.tensor(answers), states)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chats(tmp_path_factory.mktemp("data") / "chats.jsonl", 480)


@pytest.mark.parametrize("drafter", TRAINED)
def test_from_zero_to_acceptance(drafter: str, data: Path, tmp_path: Path) -> None:
    random = OPTIONS[drafter] | ({"from_target": False} if drafter.startswith("eagle") else {})
    still = replace(SETTINGS, epochs=1, rate=0.0)
    run(job(drafter, data, tmp_path / "random", still, share=0.1, states=None, options=random))
    untouched = {name: one.clone() for name, one in target().model.state_dict().items()}
    run(
        job(
            drafter,
            data,
            tmp_path / "trained",
            replace(SETTINGS, epochs=90 if drafter == "medusa" else SETTINGS.epochs),
        )
    )
    assert all(torch.equal(one, untouched[name]) for name, one in target().model.state_dict().items())
    assert accepted(drafter, tmp_path / "random") <= 0.1
    assert accepted(drafter, tmp_path / "trained") >= 0.3


@pytest.mark.parametrize("drafter", TRAINED)
@pytest.mark.parametrize(
    "answers",
    [
        [False] * 4 + [True] * 6 + [False] * 2,  # the last two are padding
        [False] * 4 + [True] * 8,  # an answer up to the end
        [False] * 3 + [True] * 2 + [False] * 3 + [True] * 3 + [False],  # two answers
    ],
)
def test_what_is_learnt_at_every_depth(drafter: str, answers: list[bool]) -> None:
    """A place is learnt from where the token that it guesses is an answer's, and lies inside the text."""
    trainee = made(drafter, torch.ones(64, dtype=torch.long))
    found = trainee(batch_of([answers], trainee))
    first = 1 if drafter == "draft-model" else 2  # heads guess the token after the one that the target has just given
    expected = [sum(answers[first + depth :]) for depth in range(len(found.count))]
    assert found.count.tolist() == expected


@pytest.mark.parametrize("drafter", TRAINED)
def test_what_is_no_answer_does_not_matter(drafter: str) -> None:
    """Other padding behind a text changes no loss, and an unlearnt row gives zero."""
    trainee = made(drafter)
    answers = [[False] * 4 + [True] * 6 + [False] * 2]
    batch = batch_of(answers, trainee)
    once = trainee(batch)
    ids = batch.ids.clone()
    ids[:, -2:] = 7
    again = trainee(replace(batch, ids=ids))
    assert once.total.item() > 0
    torch.testing.assert_close(once.total, again.total)
    nothing = trainee(replace(batch, answers=torch.zeros(1, 12, dtype=torch.bool)))
    nothing.total.backward()
    assert nothing.total.item() == 0
    assert not nothing.count.any()


def test_a_batch_without_answers_is_warned_of(data: Path, tmp_path: Path) -> None:
    from outrider.train.states import OnlineStates
    from outrider.train.trainer import accelerator

    trainee = made("medusa")
    empty = [Example(tuple(range(6, 16)), (False,) * 10)]
    alone = replace(SHORT, accumulate=1)
    trainer = Trainer(trainee, empty, OnlineStates(target(), trainee.layers), alone, tmp_path, accelerator(alone))
    before = {name: one.clone() for name, one in trainee.state_dict().items()}
    with pytest.warns(UserWarning, match="nothing to learn, so its loss is zero"):
        trainer.train(every=1, report=lambda figures: None)
    assert all(torch.isfinite(one).all() for one in trainee.state_dict().values())
    assert before.keys() == trainee.state_dict().keys()


class BrokenOffError(Exception):
    pass


@pytest.mark.parametrize("drafter", TRAINED)
def test_a_training_that_was_broken_off_goes_on_bit_for_bit(drafter: str, data: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"report_every": 1, "save_every": 0.0}
    whole, broken = (job(drafter, data, tmp_path / name, SHORT, **settings) for name in ("whole", "broken"))
    figures = run(whole)
    assert figures[-1].step > 5

    def stop(now: Figures) -> None:
        if now.step == 5:
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        run(broken, stop)
    rest = run(broken)
    assert rest[0].step == 5
    assert [one.loss for one in rest] == [one.loss for one in figures[4:]]
    mine, theirs = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_killed_run_leaves_heads_that_load(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from pathlib import Path\n"
        "from train.test_training import SETTINGS, job, run, replace\n"
        "long = replace(SETTINGS, epochs=10000)\n"
        "run(job('medusa', Path(sys.argv[2]), Path(sys.argv[3]), long, save_every=0.0))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, ":".join(sys.path), str(data), str(out)]) as process:
        deadline = time.monotonic() + 120
        while not (out / "training.pt").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
    assert outrider.inspect_heads(out, target().info).misfit is None
    assert accepted("medusa", out) >= 0.0


def test_ctrl_c_saves_the_update(data: Path, tmp_path: Path) -> None:
    whole = run(job("medusa", data, tmp_path / "whole", SHORT))

    def interrupt(figures: Figures) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(job("medusa", data, tmp_path / "broken", SHORT, report_every=7), interrupt)
    assert torch.load(tmp_path / "broken" / "training.pt", weights_only=True)["step"] == 7
    assert run(job("medusa", data, tmp_path / "broken", SHORT))[-1].step == whole[-1].step
    before, after = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_two_processes_learn_together(data: Path, tmp_path: Path) -> None:
    """Every process takes every other batch, and what comes out is one set of heads."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from pathlib import Path\n"
        "from train.test_training import SHORT, job, run\n"
        "run(job('eagle3', Path(sys.argv[2]), Path(sys.argv[3]), SHORT))\n"
    )
    script = tmp_path / "train_two.py"
    script.write_text(code)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        [*launch, str(script), ":".join(sys.path), str(data), str(tmp_path / "two")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:3000]
    log = [json.loads(line) for line in (tmp_path / "two" / "training.jsonl").read_text().splitlines()]
    alone = run(job("eagle3", data, tmp_path / "one", replace(SHORT, accumulate=4)))
    assert log[-1]["step"] == alone[-1].step
    # Twice the processes with half the forwards is the same update, from the same first weights in every process.
    assert log[-1]["loss"] == pytest.approx(alone[-1].loss, rel=1e-5)
    assert accepted("eagle3", tmp_path / "two") >= 0.0


def test_other_settings_do_not_go_on(data: Path, tmp_path: Path) -> None:
    run(job("medusa", data, tmp_path / "x", replace(SHORT, epochs=1)))
    with pytest.raises(InputError, match=r"holds a training with rate = 0.001, and this has 0.002"):
        run(job("medusa", data, tmp_path / "x", replace(SHORT, epochs=1, rate=2e-3)))
    (tmp_path / "x" / "training.pt").write_bytes(b"no")
    with pytest.raises(InputError, match=r"training.pt can't be read: .*; delete it to begin anew"):
        run(job("medusa", data, tmp_path / "x", replace(SHORT, epochs=1)))


def test_going_on_from_other_heads(data: Path, tmp_path: Path) -> None:
    for drafter in TRAINED:
        run(job(drafter, data, tmp_path / drafter, SHORT))
        still = job(drafter, data, tmp_path / f"{drafter}-2", replace(SHORT, epochs=1, rate=0.0))
        run(replace(still, heads=tmp_path / drafter))
        before, after = weights(tmp_path / drafter), weights(tmp_path / f"{drafter}-2")
        assert all(torch.equal(before[name], after[name]) for name in before), drafter


@pytest.mark.parametrize("drafter", ["eagle3", "medusa"])
def test_heads_can_be_given_more_tokens(drafter: str, data: Path, tmp_path: Path) -> None:
    run(job(drafter, data, tmp_path / "small", SHORT, options=OPTIONS[drafter] | {"draft_vocab": 24}))
    wider = job(drafter, data, tmp_path / "wide", replace(SHORT, epochs=1, rate=0.0), heads=tmp_path / "small")
    run(replace(wider, options=OPTIONS[drafter] | {"draft_vocab": 48}))
    before, after = weights(tmp_path / "small"), weights(tmp_path / "wide")
    shift = [
        one["d2t"] + torch.arange(len(one["d2t"])) if drafter == "eagle3" else one["token_map"]
        for one in (before, after)
    ]
    kept = torch.isin(shift[1], shift[0])
    assert (len(shift[0]), len(shift[1]), int(kept.sum())) == (24, 48, 24)
    for name in before.keys() - {"d2t", "t2d", "token_map"}:
        assert torch.equal(before[name], after[name][kept] if name == "lm_head.weight" else after[name]), name
    run(replace(wider, out=tmp_path / "learnt", options=OPTIONS[drafter] | {"draft_vocab": 48}, settings=SETTINGS))
    assert accepted(drafter, tmp_path / "learnt") > 0.3
    with pytest.raises(
        InputError, match="draft_vocab = 9, and the heads to go on from know 24 tokens: they can't forget any"
    ):
        run(replace(wider, out=tmp_path / "x", options=OPTIONS[drafter] | {"draft_vocab": 9}))


def test_bad_input_is_told(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="drafter 'ngram' has nothing to train; these have: draft-model, eagle"):
        trainable("ngram")
    with pytest.raises(InputError, match=r"training 'medusa': unknown option 'head'. Did you mean 'heads'\?"):
        run(job("medusa", data, tmp_path / "x", options={"head": 3}))
    with pytest.raises(InputError, match=r"eagle3: layers = \[2, 1, -1\], and they must be distinct and among 0 to 1"):
        run(job("eagle3", data, tmp_path / "x", options={"layers": [2, 1, -1]}))
    with pytest.raises(InputError, match="precision 'fp9'"):
        run(job("medusa", data, tmp_path / "x", replace(SHORT, precision="fp9")))
    with pytest.raises(
        InputError, match=r"the text makes \d batches of 9999 tokens, and an update takes 50: give more text"
    ):
        run(job("medusa", data, tmp_path / "y", replace(SHORT, batch_tokens=9999, accumulate=50)))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written: Not a directory"):
        run(job("medusa", data, tmp_path / "file" / "x"))
    ask = tmp_path / "ask.jsonl"
    ask.write_text('{"messages": [{"role": "user", "content": "w1"}]}\n')
    with pytest.raises(InputError, match="no chat with an assistant's answer"):
        run(job("medusa", ask, tmp_path / "x"))


@pytest.mark.parametrize("drafter", TRAINED)
def test_a_target_that_shows_nothing_is_refused(drafter: str) -> None:
    kind = trainable(drafter)
    start = TrainStart(replace(target().info, parts=None), "tiny", torch.ones(64, dtype=torch.long))
    with pytest.raises(InputError, match=f"{drafter} can't be trained: the target shows no parts of itself"):
        kind.trainee(start, read_train_options(kind, OPTIONS[drafter]))


def test_a_target_whose_logits_come_about_otherwise_is_refused() -> None:
    info = outrider.load(lively("t5", num_decoder_layers=2, pad_token_id=0, decoder_start_token_id=0)).info
    for drafter in TRAINED:
        kind = trainable(drafter)
        with pytest.raises(InputError):
            kind.trainee(TrainStart(info, "t5", torch.ones(64, dtype=torch.long)), read_train_options(kind, {}))


def test_hass_looks_at_the_likeliest_tokens_once_more() -> None:
    kind = trainable("eagle3")
    found = []
    for options in ({}, {"top_k": 4}, {"top_k": 4, "top_k_weight": 0.0}):
        torch.manual_seed(0)
        start = TrainStart(target().info, "tiny", torch.ones(64, dtype=torch.long))
        trainee = kind.trainee(start, read_train_options(kind, OPTIONS["eagle3"] | options))
        found.append(trainee(batch_of([[False] * 4 + [True] * 8], trainee)).total.item())
    assert found[1] > found[0]
    assert found[2] == pytest.approx(found[0])


def test_text_that_is_added_finds_the_states_of_what_was_there(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is added: all but the shard at the seam is there, and nothing is mixed up."""
    monkeypatch.setattr("outrider.train.states._SHARD", 4)
    lines = data.read_text(encoding="utf-8").splitlines(keepends=True)[:60]
    files = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    for file, part in zip(files, (lines[:40], lines[40:]), strict=True):
        file.write_text("".join(part), encoding="utf-8")

    def train(name: str, states: str | None, *files: Path) -> tuple[list[Figures], dict[Path, int]]:
        folder = tmp_path / states if states else None
        figures = run(replace(job("medusa", data, tmp_path / name, SHORT, states=folder), data=files))
        written = folder.glob("*.safetensors") if folder else ()
        return figures, {path: path.stat().st_mtime_ns for path in written}

    old, new = files
    _, alone = train("x", "alone", new)
    _, before = train("y", "states", old)
    stored, after = train("z", "states", new, old)
    assert len(alone) > 2
    assert len(before) > 4
    assert before.items() <= after.items()
    assert 0 < len(after) - len(before) <= len(alone)
    online, _ = train("u", None, new, old)
    assert stored[-1].loss == pytest.approx(online[-1].loss, rel=0.02)


def test_the_same_chats_are_held_out_whatever_is_added(data: Path, tmp_path: Path) -> None:
    lines = data.read_text(encoding="utf-8").splitlines(keepends=True)
    files = tmp_path / "one.jsonl", tmp_path / "two.jsonl", tmp_path / "twice.jsonl"
    for file, part in zip(files, (lines[:100], lines[100:200], lines[:1] * 2), strict=True):
        file.write_text("".join(part), encoding="utf-8")

    def split(*data: Path) -> tuple[set[str], list[Any]]:
        learnt, asked = _read(Job("medusa", "tiny", data, tmp_path, prompts=1_000))
        return {str(chat.messages) for chat in learnt}, asked

    one, two = split(files[0]), split(files[1])
    assert split(files[1], files[0]) == (one[0] | two[0], two[1] + one[1])
    assert one[1]
    assert len(one[0]) > 80
    assert split(files[2])[1] == []  # with nothing left to learn from, nothing is held out


def test_states_of_other_layers_are_refused(data: Path, tmp_path: Path) -> None:
    run(job("medusa", data, tmp_path / "x", SHORT, states=tmp_path / "s", share=0.2))
    with pytest.raises(InputError, match=r"holds states of layers \[2\], and \[0, 1, 2\] are wanted"):
        run(job("eagle3", data, tmp_path / "z", SHORT, states=tmp_path / "s", share=0.2))


def test_stored_states_are_those_computed_online(data: Path, tmp_path: Path) -> None:
    stored = run(job("medusa", data, tmp_path / "a", SHORT, states=tmp_path / "s"))
    online = run(job("medusa", data, tmp_path / "b", SHORT, states=None))
    assert stored[-1].loss == pytest.approx(online[-1].loss, rel=0.02)


def test_every_epoch_goes_through_all_text_once() -> None:
    luck = torch.Generator().manual_seed(0)
    examples = [Example((1,) * int(one), (True,) * int(one)) for one in torch.randint(2, 60, (300,), generator=luck)]
    first, second = plan(examples, 128, 0, 0), plan(examples, 128, 0, 1)
    assert sorted(index for one in first for index in one) == list(range(300))
    assert first != second
    assert first == plan(examples, 128, 0, 0)
    assert all(len(one) * max(len(examples[index].ids) for index in one) <= 128 for one in first)


def test_a_full_disk_leaves_the_last_heads(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(job("medusa", data, tmp_path / "x", SHORT))
    before = {one.name: one.read_bytes() for one in (tmp_path / "x").iterdir() if one.is_file()}

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("outrider_drafters.files.save_file", full)
    (tmp_path / "x" / "training.pt").unlink()
    with pytest.raises(InputError, match=r"x can't be written: No space left on device"):
        run(job("medusa", data, tmp_path / "x", SHORT))
    after = {one.name: one.read_bytes() for one in (tmp_path / "x").iterdir() if one.is_file()}
    assert after["medusa_lm_head.safetensors"] == before["medusa_lm_head.safetensors"]
    assert not [name for name in after if name.startswith(".")]
