"""Comparisons on tiny models: what rows read, what is counted, and what happens where something goes wrong."""

import json
from collections import defaultdict
from dataclasses import replace
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import outrider
from compare.example import PROMPTS, measured, settings
from outrider import DraftTree, DraftView, RowDrafter
from outrider.compare import trace
from outrider.compare.conversations import Asking, conversations, shard_of
from outrider.compare.lineup import lineup
from outrider.compare.measure import Measurement, Progress
from outrider.compare.pooled import with_figures
from outrider.compare.result import Comparison, Figures, Run
from outrider.compare.strategies import Drafting, Task, Transformers
from outrider.compare.verdicts import explained
from outrider.draft.contract import API
from outrider.prompt_file import NamedPrompt
from support import OPTIONS, char_tokenizer, lively, prompt_of, registered, tiny_model, tiny_target
from train.chatty import target as chatty


def of(found: Comparison, row: str) -> Figures:
    return next(one for one in found.figures if one.row == row)


class Fails(RowDrafter[outrider.DrafterOptions]):
    """Proposes a token, and fails at its tenth call."""

    name = "fails"
    requires_api = API
    calls = 0

    def propose_row(self, view: DraftView) -> DraftTree:
        Fails.calls += 1
        if Fails.calls == 10:
            raise ZeroDivisionError("at ten")
        return DraftTree.chain([view.ids[-1]][: view.max_depth])


@pytest.mark.parametrize("name", [record.name for record in outrider.drafters()])
def test_every_drafter_can_be_compared(name: str) -> None:
    target = tiny_target(spread=0.1)
    found = measured(target, [registered(target)[name]], {"repeats": 1})
    row = found.rows[1]
    assert row.error is None
    assert (row.drafter, row.kind, row.baseline) == (name, "drafter", "none")
    assert row.load_seconds is not None
    assert of(found, row.name).verdict.kind == "identical"
    assert of(found, row.name).tokens == of(found, "none").tokens == 4 * 24
    assert found.complete
    if name not in ("none", *OPTIONS, "self"):  # those of random weights agree with nobody
        assert of(found, row.name).accepted > 0


def test_plain_decoding_beside_itself_is_the_same() -> None:
    found = measured(tiny_target(spread=0.1), ["none"], {"repeats": 3})
    assert [row.name for row in found.rows] == ["none", "none (2)"]
    figures = of(found, "none (2)")
    assert figures.verdict.kind == "identical"
    assert figures.speed_up is not None
    assert 0 < figures.speed_up.low <= figures.speed_up.value <= figures.speed_up.high < 100
    base = of(found, "none").speed_up
    assert base is not None
    assert (base.low, base.value, base.high) == (1, 1, 1)
    assert of(found, "none").break_even_length == 1


def test_figures_are_those_that_a_trace_gives() -> None:
    """Counted again from the lines of the steps alone, with no code of the comparison."""
    found = measured(tiny_target(spread=0.1), ["ngram", "lookahead[window=3,ngram=3]"], with_hf=True)
    prompts = {one.index: one for one in found.prompts}
    lines = [json.loads(line) for run in found.runs for line in trace.lines(run, prompts[run.prompt])]
    told: dict[str, list[Any]] = defaultdict(list)
    for line in lines:
        told[line["row"]].append(line)
    for row in found.rows:
        figures, mine = of(found, row.name), told[row.name]
        steps = [line for line in mine if line["step"]]
        assert figures.tokens == sum(len(line["tokens"]) for line in mine)
        assert figures.steps == len(steps)
        assert figures.mean_acceptance_length is not None
        assert figures.mean_acceptance_length.value == pytest.approx(sum(len(x["tokens"]) for x in steps) / len(steps))
        texts: dict[Any, list[int]] = defaultdict(list)
        for line in mine:
            texts[line["index"], line["repeat"]] += line["tokens"]
        assert all(texts[one.prompt, one.repeat] == list(one.token_ids) for one in found.of(row.name))
        rate = _pooled(mine)
        assert figures.tokens_per_second is not None
        assert figures.tokens_per_second.value == pytest.approx(rate, rel=1e-3)
        assert figures.speed_up is not None
        assert figures.speed_up.value == pytest.approx(rate / _pooled(told["none"]), rel=1e-3)
        if row.kind == "transformers":
            continue
        with_draft = [line for line in steps if line["drafted"]]
        assert figures.drafted == sum(line["drafted"] for line in steps)
        assert figures.accepted == sum(line["accepted"] for line in steps)
        assert figures.wasted == figures.drafted - figures.accepted
        for depth, share in enumerate(figures.acceptance_by_depth, 1):
            assert share == pytest.approx(sum(x["accepted"] >= depth for x in with_draft) / len(with_draft))
        for depth, share in enumerate(figures.conditional_acceptance_by_depth, 1):
            asked = [line for line in with_draft if line["asked"] >= depth]
            assert share == pytest.approx(sum(x["accepted"] >= depth for x in asked) / len(asked))
        total = sum(line["seconds"] for line in steps)
        for part in ("draft", "target", "verify"):
            share = getattr(figures, f"{part}_share")
            assert share == pytest.approx(sum(x[f"{part}_seconds"] for x in steps) / total, rel=1e-3)
        shares = [figures.draft_share, figures.target_share, figures.verify_share, figures.rest_share]
        assert sum(one or 0 for one in shares) == pytest.approx(1)
    assert of(found, "ngram").accepted > 0


def _pooled(lines: list[Any]) -> float:
    """Step tokens by step seconds: of every conversation the median repeat."""
    unit: Any = defaultdict(lambda: [0, 0.0])
    for line in lines:
        if line["step"]:
            cell = unit[line["prompt"].partition("/")[0], line["repeat"]]
            cell[0] += len(line["tokens"])
            cell[1] += line["seconds"]
    names = {name for name, _ in unit}
    tokens = seconds = 0.0
    for name in names:
        first, second = unit[name, 0], unit[name, 1]
        tokens += (first[0] + second[0]) / 2
        seconds += (first[1] + second[1]) / 2  # the median of two
    return tokens / seconds


def test_counts_are_those_of_generate() -> None:
    target = tiny_target(spread=0.1)
    found = measured(target, ["ngram"], {"repeats": 1})
    prompt = found.prompts[0]
    run = next(one for one in found.of("ngram") if one.prompt == prompt.index)
    result = outrider.generate(target, PROMPTS[0].text, "ngram", max_new_tokens=24, temperature=0, adaptive=False)
    assert run.token_ids == result.token_ids
    assert "".join(run.pieces) == result.text
    assert len(run.steps) == result.stats.num_steps
    assert sum(run.steps.drafted) == result.stats.num_draft_tokens
    assert sum(run.steps.accepted) == result.stats.num_accepted_draft_tokens
    assert run.step_tokens == result.stats.num_tokens - 1


def test_steps_say_what_was_accepted_and_what_would_have_come() -> None:
    found = measured(tiny_target(spread=0.1), ["ngram"], {"repeats": 1})
    seen = set()
    for run in found.of("ngram"):
        steps, at = run.steps, run.prefill_tokens
        for emitted, path, asked, depth, rejected in zip(
            steps.emitted, steps.path, steps.asked, steps.depth, steps.rejected, strict=True
        ):
            assert len(path) <= emitted <= len(path) + 1
            assert len(path) <= asked <= min(len(path) + 1, depth)
            if emitted == len(path) + 1 and rejected:
                assert rejected[0] != run.token_ids[at + len(path)]
                seen.add("rejected")
            at += emitted
        assert at == len(run.token_ids)
        assert "".join(run.pieces) == "".join(run.pieces)
    assert seen == {"rejected"}


def test_all_rows_read_the_same_ids_and_the_baseline_s_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    whole = Drafting.run

    def watched(self: Drafting, tasks: list[Task]) -> Any:
        if tasks[0].conversation:
            read[str(self._word)].append(tasks[0].ids)
        return whole(self, tasks)

    monkeypatch.setattr(Drafting, "run", watched)
    target = chatty()
    prompts = [NamedPrompt("talk", "w1 w2", "", ("w3 w4", "w5"), system="w9"), NamedPrompt("single", "w7")]
    found = measured(target, ["ngram"], {"chat": True, "repeats": 2}, prompts)
    assert sorted(read["ngram"]) == sorted(read["none"])
    assert len(read["ngram"]) == 8
    assert [one.name for one in found.prompts] == ["talk/1", "talk/2", "talk/3", "single"]
    answers = ["".join(run.pieces) for run in found.of("none") if run.repeat == 0][:2]
    messages = [{"role": "system", "content": "w9"}, {"role": "user", "content": "w1 w2"}]
    messages += [{"role": "assistant", "content": answers[0]}, {"role": "user", "content": "w3 w4"}]
    messages += [{"role": "assistant", "content": answers[1]}, {"role": "user", "content": "w5"}]
    wanted = outrider.generate(target, messages, "none", max_new_tokens=24, temperature=0)
    third = [run for run in found.runs if run.prompt == 2]
    assert len(third) == 4
    assert {run.token_ids for run in third} == {wanted.token_ids}
    assert found.prompts[2].tokens == wanted.stats.num_prompt_tokens


def test_rows_in_batches_give_the_same_texts_and_share_their_time() -> None:
    found = measured(tiny_target(spread=0.1), ["ngram"], {"batch_sizes": (1, 2, 4), "repeats": 1}, with_hf=True)
    names = [row.name for row in found.rows]
    assert names[:4] == ["none@1", "ngram@1", "transformers generate@1", "transformers prompt lookup@1"]
    assert names[4:] == ["none@2", "ngram@2", "transformers generate@2", "none@4", "ngram@4", "transformers generate@4"]
    assert {row.name: row.baseline for row in found.rows}["ngram@4"] == "none@4"
    assert all(one.verdict.kind == "identical" for one in found.figures)
    texts = {run.prompt: run.token_ids for run in found.of("none@1")}
    for run in found.runs:
        assert run.token_ids == texts[run.prompt]
    groups: dict[int, list[Run]] = defaultdict(list)
    for run in found.of("none@2"):
        groups[run.group].append(run)
    together = next(runs for runs in groups.values() if len(runs) == 2)
    assert together[0].steps.seconds == together[1].steps.seconds
    assert together[0].prefill_seconds == together[1].prefill_seconds
    assert {one.batch_size for one in found.parts[0].costs} == {1, 2, 4}


def test_prompt_lookup_and_assisted_generation_take_fewer_steps() -> None:
    draft = {"name": "draft-model", "options": {"model": tiny_model(0, 0.1)}}
    found = measured(tiny_target(spread=0.1), [draft], {"repeats": 1}, with_hf=True)
    steps = {one.row: one.steps for one in found.figures}
    assert steps["transformers generate"] == steps["none"]
    assert steps["transformers prompt lookup"] < steps["none"]
    assert steps["transformers assisted"] < steps["none"]
    assert all(one.verdict.kind == "identical" for one in found.figures)


def test_encoder_decoders_are_compared_too() -> None:
    model = lively("t5", d_model=32, d_kv=8, num_heads=4, num_layers=2, d_ff=64, decoder_start_token_id=0)
    target = outrider.load(model, tokenizer=char_tokenizer())
    found = measured(
        target, ["ngram"], {"repeats": 1}, (NamedPrompt("a", "abc abc"), NamedPrompt("b", "xyz")), with_hf=True
    )
    assert [row.error for row in found.rows] == [None] * 4
    assert {one.verdict.kind for one in found.figures} == {"identical"}
    assert {one.tokens for one in found.figures} == {2 * 24}


def test_a_row_that_fails_says_why_and_the_others_finish(tmp_path: Path) -> None:
    Fails.calls = 0
    found = measured(tiny_target(spread=0.1), [Fails, "ngram"], {"repeats": 1})
    row = found.rows[1]
    assert row.error == "drafter 'fails' failed in propose: ZeroDivisionError: at ten"
    assert [len(found.of(one.name)) for one in found.rows] == [4, 0, 4]
    assert found.complete
    assert of(found, "fails").tokens_per_second is None


def test_an_interrupted_measurement_keeps_what_it_has_and_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    record, made = tmp_path / "runs.jsonl", list[str]()
    whole = Drafting.run

    def stops(self: Drafting, tasks: list[Task]) -> Any:
        if tasks[0].conversation:
            if len(made) == 7:
                raise KeyboardInterrupt
            made.append(str(self._word))
        return whole(self, tasks)

    target, options = tiny_target(spread=0.1), settings()
    heard: list[Progress] = []
    monkeypatch.setattr(Drafting, "run", stops)
    first = Measurement(target, lineup(["ngram"]), PROMPTS, options, record=record, hear=heard.append)
    found = with_figures(first.run())
    assert isinstance(first.stopped, KeyboardInterrupt)
    assert (len(found.runs), found.complete) == (7, False)
    assert of(found, "ngram").runs == 3
    assert heard[-1].done == 7
    assert heard[-1].total == 16
    assert (heard[-1].left or 0) > 0
    monkeypatch.setattr(Drafting, "run", whole)
    made.clear()
    with record.open("a") as file:
        file.write('{"run": {"row": "n')  # killed in the middle of a line
    second = Measurement(target, lineup(["ngram"]), PROMPTS, options, record=record, hear=heard.append)
    later = second.run()
    assert later.complete
    assert heard[-1].made == 9
    assert all(run in later.runs for run in found.runs)
    # Rows and repeats may be added; nothing that is there is made again.
    third = Measurement(target, lineup(["ngram", "none"]), PROMPTS, replace(options, repeats=3), record=record)
    assert len(third.run().runs) == 3 * 3 * 4
    text = record.read_text()
    assert not any(said in text for prompt in PROMPTS for said in prompt.turns)


def test_a_record_of_other_settings_is_refused(tmp_path: Path) -> None:
    target, record = tiny_target(spread=0.1), tmp_path / "runs.jsonl"
    Measurement(target, lineup(["ngram"]), PROMPTS[:1], settings(repeats=1), record=record).run()
    for prompts, changed in ((PROMPTS[:2], {}), (PROMPTS[:1], {"seed": 2})):
        with pytest.raises(outrider.InputError, match="other settings"):
            Measurement(target, lineup(["ngram"]), prompts, settings(**changed), record=record).run()


def test_a_full_disk_ends_the_measurement_with_what_it_has(tmp_path: Path, monkeypatch: Any) -> None:
    kept: list[int] = []

    def full(*_: Any) -> None:
        kept.append(1)
        if len(kept) == 5:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("outrider.compare.record.Record.keep", full)
    one = Measurement(tiny_target(spread=0.1), lineup(["ngram"]), PROMPTS, settings(), record=tmp_path / "x.jsonl")
    found = one.run()
    assert isinstance(one.stopped, OSError)
    assert 3 <= len(found.runs) < 8


def test_a_wrong_text_is_a_fault() -> None:
    target = tiny_target(spread=0.1)
    found = measured(target, ["ngram"], {"repeats": 1})
    wrong = next(one for one in found.runs if one.row == "ngram")
    ids = (*wrong.token_ids[:5], (wrong.token_ids[5] + 1) % 64, *wrong.token_ids[6:])
    short = wrong.token_ids[:-3]
    for changed in (ids, short):
        runs = tuple(replace(one, token_ids=changed) if one is wrong else one for one in found.runs)
        asking = Asking(target, chat=False, seed=1, texts=True)
        again = with_figures(explained(replace(found, runs=runs), target, asking, conversations(PROMPTS)))
        verdict = of(again, "ngram").verdict
        assert (verdict.kind, verdict.parted) == ("fault", 1)
        assert verdict.faults >= 1
        assert of(again, "none").verdict.kind == "identical"


def test_drawn_texts_are_compared_where_they_are_to_be_the_same() -> None:
    changed = {"generation": {"max_new_tokens": 24, "temperature": 1.0}, "sampled": True, "repeats": 1}
    found = measured(tiny_target(), ["ngram"], changed, rules=["match", "rejection"], with_hf=True)
    kinds = {one.row: one.verdict.kind for one in found.figures}
    assert kinds["ngram match"] == "identical"
    assert kinds["ngram rejection"] == kinds["transformers generate"] == "not compared"


def test_acceptance_alone_needs_no_baseline() -> None:
    found = measured(tiny_target(spread=0.1), ["ngram"], {"repeats": 1, "acceptance_only": True}, baseline=False)
    assert [row.name for row in found.rows] == ["ngram"]
    figures = of(found, "ngram")
    assert figures.speed_up is None
    assert figures.verdict.kind == "not compared"
    assert figures.mean_acceptance_length is not None
    assert [one.category for one in figures.by_category] == ["writing", "copying"]
    tokens = [one.tokens - one.prompts for one in figures.by_category]
    assert [one.mean_acceptance_length for one in figures.by_category] == [
        pytest.approx(count / one.steps) for count, one in zip(tokens, figures.by_category, strict=True)
    ]
    assert found.parts[0].costs == ()


def test_the_cost_curve_and_the_machine_are_told() -> None:
    part = measured(tiny_target(spread=0.1), [], {"repeats": 1}).parts[0]
    sizes = [one.rows for one in part.costs]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert all(one.seconds > 0 and isfinite(one.seconds) for one in part.costs)
    assert {"torch", "transformers", "outrider", "python"} <= part.versions.keys()
    assert part.machine["cores"] >= 1
    assert len(part.noise.calibrations) >= 2


def test_shards_take_whole_batches() -> None:
    said = conversations([NamedPrompt(str(at), "a", later=("b",) * (at % 2)) for at in range(10)])
    parts = [shard_of(said, f"{at}/3", 2) for at in (1, 2, 3)]
    assert [[one.prompt.name for one in part] for part in parts] == [
        ["0", "1", "6", "7"],
        ["2", "3", "8", "9"],
        ["4", "5"],
    ]
    assert sorted((one for part in parts for one in part), key=lambda one: one.first) == said
    for wrong in ("0/3", "4/3", "1", "a/b", "1/", "-1/2"):
        with pytest.raises(outrider.InputError, match="write i/n"):
            shard_of(said, wrong, 1)
    with pytest.raises(outrider.InputError, match="fewer shards"):
        shard_of(said, "9/9", 2)


def test_prompts_of_one_name_and_no_prompts_are_refused() -> None:
    with pytest.raises(outrider.InputError, match="same name: a"):
        conversations([NamedPrompt("a", "x"), NamedPrompt("a", "y")])
    with pytest.raises(outrider.InputError, match="no prompts"):
        conversations([])


@pytest.mark.parametrize("way", ["outrider", "transformers"])
def test_texts_that_are_decoded_together_share_the_time_that_it_took(way: str) -> None:
    target = tiny_target(spread=0.1)
    options = {"max_new_tokens": 16, "temperature": 0.0}
    strategy = Drafting(target, "ngram", options) if way == "outrider" else Transformers(target, options, {})
    strategy.begin()
    tasks = [Task(tuple(prompt_of(4 + at)), 0) for at in range(4)]
    start = perf_counter()
    made = strategy.run(tasks)
    took = perf_counter() - start
    assert 0 < sum(one.prefill_seconds + one.total("seconds") for one in made) <= took + 1e-5
    assert len({one.prefill_seconds for one in made}) == 1


class Counted(RowDrafter[outrider.DrafterOptions]):
    """Knows how many of it were made, and what the one in use has seen."""

    name = "counted"
    requires_api = API
    made = 0

    def __init__(self, target: outrider.TargetInfo, options: outrider.DrafterOptions) -> None:
        super().__init__(target, options)
        Counted.made += 1

    def propose_row(self, view: DraftView) -> DraftTree:
        return DraftTree()


def test_a_drafter_is_made_anew_for_every_repeat_and_serves_all_prompts_of_it() -> None:
    Counted.made = 0
    measured(tiny_target(spread=0.1), [Counted], {"repeats": 3})
    assert Counted.made == 3
