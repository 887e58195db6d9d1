import base64
import hashlib
import re
import resource
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from compare.reports import DATA, HOSTILE, Node, big, made_up, parsed, saved, token_data
from environments import ROOT, build_wheel
from outrider.cli.app import app, run_app
from outrider.compare.merge import merge
from outrider.compare.pooled import with_figures
from outrider.compare.report.chart import axis, doublings, whole
from outrider.compare.report.page import page, write_report
from outrider.compare.report.visible import visible, visible_piece
from outrider.compare.result import Comparison, Estimate, Parting, Run
from outrider.errors import InputError

SECTIONS = ("headline", "what", "table", "speed", "needs", "time", "acceptance", "costs", "categories", "tokens")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return saved()


@pytest.fixture(scope="module")
def report(comparison: Comparison) -> Node:
    return parsed(page(comparison))


def main_table(report: Node) -> Node:
    return report.by_id("table").all("table")[0]


def cells(report: Node) -> dict[str, dict[str, str]]:
    """The main table: for every row its cells by their column."""
    table = main_table(report)
    head = [cell.text for cell in table.all("thead")[0].all("th")]
    lines = [dict(zip(head if len(line) > 2 else (head[0], head[-1]), line, strict=True)) for line in table.lines()]
    return {re.sub(r" (fastest|baseline)$", "", line["row"]): line for line in lines}


def number(cell: str) -> float:
    return float(re.match(r"[\d.]+", cell)[0])  # type: ignore[index]


def test_warnings_come_before_all_else_and_every_section_is_there(report: Node, comparison: Comparison) -> None:
    ids = [one.attributes.get("id") for one in report.all("section")]
    assert ids[0] == "warnings"
    assert tuple(ids[1:]) == SECTIONS
    warned = [one.text for one in report.by_id("warnings").all("li")]
    assert warned == list(comparison.parts[0].noise.warnings)


def test_what_was_compared_is_told(report: Node) -> None:
    told = report.by_id("what").text
    for word in (
        "tiny",
        "float64",
        "cpu",
        "max_new_tokens 24",
        "torch 2",
        "transformers 5",
        "Intel",
        "once upon a time",
    ):
        assert word in told


def test_tables_have_headers_captions_and_the_rows_in_their_order(report: Node, comparison: Comparison) -> None:
    for table in report.all("table"):
        assert table.all("caption")
        assert all(one.attributes.get("scope") in ("col", "row") for one in table.all("th"))
        assert len(table.all("tbody")[0].all("tr")) == len(
            [one for one in table.all("th") if one.attributes["scope"] == "row"]
        )
    assert list(cells(report)) == [row.name for row in comparison.rows]
    assert "baseline" in main_table(report).all("tr", "baseline")[0].text


def test_the_figures_are_those_of_a_recount(report: Node, comparison: Comparison) -> None:
    told = cells(report)
    rates = {}
    for row in comparison.rows:
        runs = comparison.of(row.name)
        steps = [step for run in runs for step in zip(run.steps.drafted, run.steps.path, strict=True)]
        emitted = sum(sum(run.steps.emitted) for run in runs)
        rates[row.name] = rate(comparison, row.name)
        line = told[row.name]
        assert number(line["tokens/s"]) == pytest.approx(rates[row.name], abs=0.06)
        assert number(line["tokens a step"]) == pytest.approx(emitted / sum(len(run.steps) for run in runs), abs=0.006)
        if row.name != row.baseline:
            assert number(line["speed-up"]) == pytest.approx(rates[row.name] / rates[row.baseline], abs=0.006)
        if any(drafted for drafted, _ in steps):
            drafted, accepted = sum(one for one, _ in steps), sum(len(path) for _, path in steps)
            assert [line["drafted"], line["wasted"]] == [str(drafted), str(drafted - accepted)]
            assert line["accepted"] == f"{accepted} ({accepted / drafted:.0%})"
    quick = max(rates, key=lambda name: rates[name])
    assert [line["row"] for line in told.values() if "fastest" in line["row"]] == [f"{quick} fastest"]
    assert quick in report.by_id("headline").all("li")[0].text


def rate(comparison: Comparison, row: str) -> float:
    """Step tokens by step seconds, of every conversation the median repeat."""
    of = {one.index: one.conversation for one in comparison.prompts}
    tokens = seconds = 0.0
    for name in set(of.values()):
        repeats: dict[int, list[Run]] = {}
        for run in comparison.of(row):
            if of[run.prompt] == name:
                repeats.setdefault(run.repeat, []).append(run)
        tokens += sum(len(run.token_ids) - run.prefill_tokens for run in repeats[0])
        seconds += median(sum(run.seconds - run.prefill_seconds for run in runs) for runs in repeats.values())
    return tokens / seconds


def test_plots_show_the_figures(report: Node, comparison: Comparison) -> None:
    for row, one in zip(comparison.rows, comparison.figures, strict=True):
        depths = report.by_id("acceptance").all("figure")
        for figure, values in zip(depths, (one.acceptance_by_depth, one.conditional_acceptance_by_depth), strict=True):
            said = [
                item.text for item in figure.all("ul", "numbers")[0].all("li") if item.text.startswith(f"{row.name}, ")
            ]
            assert said == [f"{row.name}, depth {at}: {value:.0%}" for at, value in enumerate(values, start=1)]
    strips = {strip.all("bdi")[0].text: strip for strip in report.by_id("speed").all("div", "strip")[:-1]}
    assert list(strips) == [row.name for row in comparison.rows[1:]]
    for row, one in zip(comparison.rows[1:], comparison.figures[1:], strict=True):
        assert one.speed_up is not None
        words = "faster" if one.speed_up.low > 1 else "slower" if one.speed_up.high < 1 else "no difference told"
        assert (
            strips[row.name].text
            == f"{row.name} {one.speed_up.value:.2f}x ({one.speed_up.low:.2f}-{one.speed_up.high:.2f}) {words}"
        )


def percent(node: Node, name: str) -> float:
    return float(str(node.attributes[name]).removesuffix("%"))


def test_marks_lie_where_their_values_are(report: Node, comparison: Comparison) -> None:
    speed = report.by_id("speed")
    end = number(speed.all("div", "scale")[0].all("text")[-2].text)
    assert percent(speed.all("line", "level")[0], "x1") == pytest.approx(100 / end, abs=0.01)
    for one, strip in zip(comparison.figures[1:], speed.all("div", "strip")[:-1], strict=True):
        assert one.speed_up is not None
        low, value, high = (100 * at / end for at in (one.speed_up.low, one.speed_up.value, one.speed_up.high))
        (span,), (has,) = strip.all("line", "span"), strip.all("circle", "has")
        found = [percent(span, "x1"), percent(has, "cx"), percent(span, "x2")]
        assert found == pytest.approx([low, value, high], abs=0.01)
    needs = report.by_id("needs")
    end = number(needs.all("div", "scale")[0].all("text")[-2].text)
    for one, strip in zip(comparison.figures[1:], needs.all("div", "strip")[:-1], strict=True):
        assert one.mean_acceptance_length is not None
        assert one.break_even_length is not None
        found = [percent(strip.all("circle", kind)[0], "cx") for kind in ("has", "need")]
        assert found == pytest.approx(
            [100 * at / end for at in (one.mean_acceptance_length.value, one.break_even_length)], abs=0.01
        )
    drafting = [one for one in comparison.figures if one.acceptance_by_depth]
    for at, name in enumerate(("acceptance_by_depth", "conditional_acceptance_by_depth")):
        groups = report.by_id("acceptance").all("figure")[at].all("svg", "plot")[0].all("g")
        for one, group in zip(drafting, groups, strict=True):
            found = [percent(mark, "y") for mark in group.all("svg", "point")]
            assert found == pytest.approx([100 - 100 * value for value in getattr(one, name)], abs=0.01)


def test_the_cost_curve_is_that_of_the_measured_forwards(report: Node, comparison: Comparison) -> None:
    (figure,) = report.by_id("costs").all("figure")
    first, *_ = comparison.parts[0].costs
    wanted = [f"{one.rows} tokens cost {one.seconds / first.seconds:.2f}x one" for one in comparison.parts[0].costs]
    said = [item.text for item in figure.all("ul", "numbers")[0].all("li")]
    assert said[: len(wanted)] == wanted
    drafting = [one for one in comparison.figures if one.drafted and one.mean_acceptance_length]
    assert len(said) == len(wanted) + len(drafting)
    end = number(next(one.text for one in figure.all("text") if one.attributes.get("y") == "0.0%"))
    marks = figure.all("svg", "plot")[0].all("g")[1:]
    for one, mark in zip(drafting, marks, strict=True):
        assert one.mean_acceptance_length is not None
        assert percent(mark.all("svg", "point")[0], "y") == pytest.approx(
            100 - 100 * one.mean_acceptance_length.value / end, abs=0.01
        )


def test_time_is_shared_out_as_the_runs_say(report: Node, comparison: Comparison) -> None:
    for row, strip in zip(comparison.rows, report.by_id("time").all("div", "strip"), strict=True):
        widths = [float(str(one.attributes["width"]).rstrip("%")) for one in strip.all("rect")]
        runs = comparison.of(row.name)
        whole = sum(run.seconds - run.prefill_seconds for run in runs)
        parts = [sum(getattr(run, f"{name}_seconds") for run in runs) / whole for name in ("draft", "target", "verify")]
        if row.kind == "transformers":
            assert widths == []
            assert "not told" in strip.text
        else:
            assert widths == pytest.approx([*(100 * one for one in parts), 100 * (1 - sum(parts))], abs=0.01)


def test_the_token_view_holds_every_text_and_counts_as_the_table_does(report: Node, comparison: Comparison) -> None:
    data, told = token_data(report), cells(report)
    assert len(data["runs"]) == len(comparison.runs)
    for run, mine in zip(data["runs"], comparison.runs, strict=True):
        shown = [tuple(data["tokens"][at]) for at in data["texts"][run["text"]]]
        assert shown == list(zip(mine.token_ids, map(visible_piece, mine.pieces), strict=True))
        assert run["prefill"] + sum(run["emitted"]) == len(shown)
        assert [data["drafts"][at] for at in run["draft"]] == list(mine.steps.rejected_text)
    assert len(data["texts"]) == len({(run.prompt, run.token_ids) for run in comparison.runs})
    for at, name in enumerate(data["rows"]):
        runs = [run for run in data["runs"] if run["row"] == at]
        drafted, accepted = (sum(sum(run[column]) for run in runs) for column in ("drafted", "accepted"))
        line = told[name]
        if drafted:
            assert [line["drafted"], line["accepted"].split()[0]] == [str(drafted), str(accepted)]
        steps = sum(len(run["emitted"]) for run in runs)
        assert number(line["tokens a step"]) == pytest.approx(
            sum(sum(run["emitted"]) for run in runs) / steps, abs=0.006
        )


def test_steps_of_transformers_say_what_is_known_and_no_more(report: Node, comparison: Comparison) -> None:
    data = token_data(report)
    for run in data["runs"]:
        if comparison.rows[run["row"]].kind == "transformers":
            assert run["emitted"]
            assert run["accepted"] == run["drafted"] == run["draft"] == []


def test_nothing_outside_the_file_is_named_and_its_policy_forbids_it(comparison: Comparison) -> None:
    text = page(comparison)
    report = parsed(text)
    assert not re.search(r"https?:|url\(|@import|\bsrc=|srcset|<link|<iframe|<object|<form", text)
    links = [value for node in report.every() for name, value in node.attributes.items() if name.endswith("href")]
    assert links
    assert all(str(link).startswith("#mark-") and report.has(str(link)[1:]) for link in links)
    (policy,) = [str(one.attributes["content"]) for one in report.all("meta") if "http-equiv" in one.attributes]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (code,) = [one.raw for one in report.all(tag) if one.attributes.get("type") is None]
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not [node for node in report.every() if "style" in node.attributes]


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_are_shown_and_never_obeyed(text: str, comparison: Comparison) -> None:
    found = made_up(3, ("none", f"d {text}", "e"), 12, pieces=(text, "x"))
    noise = replace(found.parts[0].noise, warnings=(f"w {text}",))
    part = replace(found.parts[0], noise=noise, machine={"processor": text}, versions={text: text})
    rows = (*found.rows[:2], replace(found.rows[2], error=f"it said {text}"))
    settings = replace(found.settings, model=text, command=text)
    html = page(replace(found, parts=(part,), rows=rows, settings=settings))
    clean = parsed(page(made_up(3, ("none", "d", "e"), 12)))
    html.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\ufeff\ud800-\udfff]", html)
    report = parsed(html)
    assert {node.tag for node in report.every()} == {node.tag for node in clean.every()}
    assert not [name for node in report.every() for name in node.attributes if name.startswith("on")]
    assert len(report.all("script")) == len(clean.all("script")) == 2
    shown = visible(text)
    assert f"w {shown}" in report.by_id("warnings").raw
    assert f"it said {shown}" in report.by_id("table").raw
    data = token_data(report)
    assert visible_piece(text) in [piece for _, piece in data["tokens"]]
    assert data["rows"][1] == f"d {shown}"


def test_signs_stand_for_what_cannot_be_seen() -> None:
    assert visible("a\x00\x1b\x7f\x85\u202e\ud800b\nc\td") == "a␀␛␡⟨U+0085⟩⟨U+202E⟩⟨U+D800⟩b\nc\td"
    assert visible_piece("a\nb\t") == "a↵\nb⇥"
    assert visible_piece("a\nb", breaks=False) == "a↵b"
    assert visible("naïve 日本 👩\u200d🚀 עברית") == "naïve 日本 👩\u200d🚀 עברית"


def test_a_token_that_completes_no_character_and_one_without_text_are_shown() -> None:
    found = made_up(1, ("none", "d"), 4)
    runs = tuple(replace(run, pieces=("", "a", "b", "c")) for run in found.runs)
    data = token_data(parsed(page(replace(found, runs=runs))))
    assert data["tokens"][data["texts"][0][0]] == [runs[0].token_ids[0], "▯"]
    bare = tuple(
        replace(run, pieces=(), steps=replace(run.steps, rejected_text=("",) * len(run.steps))) for run in runs
    )
    data = token_data(parsed(page(replace(found, runs=bare))))
    assert [piece for _, piece in data["tokens"]] == [f"{token} " for token in bare[0].token_ids]
    assert "1 2 3" in data["drafts"]


def test_rows_that_failed_say_why(comparison: Comparison) -> None:
    rows = tuple(replace(row, error="no such heads") if row.name == "ngram" else row for row in comparison.rows)
    runs = tuple(run for run in comparison.runs if run.row != "ngram")
    report = parsed(page(with_figures(replace(comparison, rows=rows, runs=runs))))
    line = cells(report)["ngram"]
    assert line["text"] == "FAILED: no such heads"
    assert "FAILED before the end: ngram." in report.by_id("headline").text
    assert list(line) == ["row", "text"]
    assert next(node.text for node in main_table(report).all("tr", "bad")).startswith("ngram")
    assert "failed before" in report.by_id("time").text


def test_a_row_that_failed_midway_keeps_its_figures(comparison: Comparison) -> None:
    rows = tuple(replace(row, error="out of memory") if row.name == "ngram" else row for row in comparison.rows)
    runs = tuple(run for run in comparison.runs if run.row != "ngram" or run.prompt == 0)
    line = cells(parsed(page(with_figures(replace(comparison, rows=rows, runs=runs)))))["ngram"]
    assert line["text"] == "FAILED: out of memory"
    assert line["drafted"] == str(sum(sum(run.steps.drafted) for run in runs if run.row == "ngram"))


def test_a_fault_is_said_loudly_and_is_never_the_fastest(comparison: Comparison) -> None:
    quick = max(comparison.figures, key=lambda one: one.tokens_per_second.value if one.tokens_per_second else 0).row
    parting = Parting(position=3, token=1, plain_token=2, gap=4.0, verdict="fault")
    runs = tuple(
        replace(run, token_ids=(*run.token_ids[:-1], run.token_ids[-1] + 1), partings=(parting,))
        if run.row == quick
        else run
        for run in comparison.runs
    )
    report = parsed(page(with_figures(replace(comparison, runs=runs))))
    assert cells(report)[quick]["text"].startswith("FAULT")
    assert f"rounding can't account for: {quick}." in report.by_id("headline").text
    assert "fastest" not in main_table(report).all("tr", "bad")[0].text
    data = token_data(report)
    assert [3, "fault", 4.0, 2] in [one for run in data["runs"] for one in run["partings"]]


@pytest.mark.parametrize(
    ("rate", "speed_up", "said"),
    [
        (900.0, (1.5, 1.2, 1.8), "ngram is the fastest, 1.50 times plain decoding (1.20-1.80)."),
        (
            900.0,
            (1.5, 0.9, 1.8),
            "ngram is the fastest, 1.50 times plain decoding (0.90-1.80); the interval holds 1, so it may be",
        ),
        (100.0, (0.5, 0.4, 0.6), "Nothing is faster than plain decoding: do not speculate here."),
    ],
)
def test_the_headline_says_what_follows(
    rate: float, speed_up: tuple[float, float, float], said: str, comparison: Comparison
) -> None:
    plain, drafter = comparison.figures[:2]
    value, low, high = speed_up
    figures = (
        replace(plain, tokens_per_second=Estimate(value=300.0, low=290.0, high=310.0)),
        replace(
            drafter,
            tokens_per_second=Estimate(value=rate, low=rate, high=rate),
            speed_up=Estimate(value=value, low=low, high=high),
        ),
    )
    runs = tuple(run for run in comparison.runs if run.row in ("none", "ngram"))
    found = replace(comparison, rows=comparison.rows[:2], runs=runs, figures=figures)
    first, second = (one.text for one in parsed(page(found)).by_id("headline").all("li"))
    assert first.startswith(said)
    assert second == "Every text of every row is plain decoding's own, token by token."


def test_figures_that_are_missing_are_worked_out(comparison: Comparison) -> None:
    assert page(replace(comparison, figures=())) == page(comparison)


def test_acceptance_alone_has_no_speeds(comparison: Comparison) -> None:
    rows = tuple(replace(row, baseline="") for row in comparison.rows if row.kind == "drafter")
    runs = tuple(run for run in comparison.runs if run.row in {row.name for row in rows})
    settings = replace(comparison.settings, acceptance_only=True, repeats=1)
    parts = (replace(comparison.parts[0], costs=()),)
    alone = with_figures(replace(comparison, rows=rows, runs=runs, settings=settings, parts=parts))
    report = parsed(page(alone))
    assert not {"speed", "needs", "costs"} & {one.attributes.get("id") for one in report.all("section")}
    assert "speed-up" not in cells(report)["ngram"]
    assert report.has("acceptance")
    assert "Only acceptance was measured" in report.by_id("headline").text


def test_a_comparison_of_nothing_is_still_a_page(comparison: Comparison) -> None:
    empty = replace(comparison, runs=(), prompts=(), figures=(), complete=False)
    report = parsed(page(empty))
    assert "not everything was measured" in report.by_id("warnings").text
    assert token_data(report)["runs"] == []


def test_merged_shards_show_every_machine(comparison: Comparison) -> None:
    shards = []
    for at, prompts in ((1, comparison.prompts[:1]), (2, comparison.prompts[1:])):
        name = f"{at}/2"
        there = {one.index for one in prompts}
        part = replace(comparison.parts[0], shard=name, machine={"processor": f"machine {at}"})
        runs = tuple(run for run in comparison.runs if run.prompt in there)
        settings = replace(comparison.settings, shard=name)
        shards.append(replace(comparison, prompts=prompts, parts=(part,), runs=runs, settings=settings))
    report = parsed(page(merge(shards, ["one", "two"])))
    assert {"shard 1/2", "shard 2/2"} <= set(re.findall(r"shard \d/\d", report.by_id("what").text))
    assert all(f"machine {at}" in report.by_id("what").text for at in (1, 2))
    assert [one.text.split(":")[0] for one in report.by_id("warnings").all("li")] == ["(shard 1/2)"] * 2 + [
        "(shard 2/2)"
    ] * 2
    legend = report.by_id("costs").all("ul", "legend")[0].text
    assert legend.startswith("shard 1/2 shard 2/2 ngram")
    assert len(token_data(report)["runs"]) == len(comparison.runs)


def test_batch_sizes_are_lines_of_a_plot(comparison: Comparison) -> None:
    sizes: Any = (1, 4)
    plain, drafter = comparison.rows[:2]
    rows = tuple(
        replace(row, name=f"{row.name}@{size}", baseline=f"none@{size}", batch_size=size)
        for size in sizes
        for row in (plain, drafter)
    )
    runs = tuple(
        replace(run, row=f"{run.row}@{size}")
        for size in sizes
        for run in comparison.runs
        if run.row in ("none", "ngram")
    )
    settings = replace(comparison.settings, batch_sizes=sizes)
    report = parsed(page(with_figures(replace(comparison, rows=rows, runs=runs, settings=settings))))
    speed, rates = report.by_id("batches").all("figure")
    assert [one.text for one in speed.all("ul", "legend")[0].all("li")] == ["ngram"]
    assert [one.text for one in rates.all("ul", "legend")[0].all("li")] == ["none", "ngram"]
    assert [one.text.split(":")[0] for one in speed.all("ul", "numbers")[0].all("li")] == ["ngram@1", "ngram@4"]
    assert len(main_table(report).all("tr", "fastest")) == 2
    assert len(report.by_id("headline").all("li")) == 3
    assert [one.text for one in report.by_id("costs").all("figcaption")] == ["Texts in a forward: 1"]


def test_other_rules_have_a_table_where_they_are_known(comparison: Comparison, report: Node) -> None:
    assert not report.has("counterfactual")
    runs = tuple(
        replace(run, counterfactual={"block": 2.0 * len(run.steps)}) if run.row == "ngram" else run
        for run in comparison.runs
    )
    told = parsed(page(with_figures(replace(comparison, runs=runs)))).by_id("counterfactual").all("table")[0].lines()
    assert told == [["ngram", "2.00"]]


def test_categories_are_recounted(report: Node, comparison: Comparison) -> None:
    kinds = {one.index: one.category for one in comparison.prompts}
    lengths, speeds = report.by_id("categories").all("table")
    head = [one.text for one in lengths.all("thead")[0].all("th")[1:]]
    assert head == list(dict.fromkeys(kinds.values()))
    for row, line in zip(comparison.rows, lengths.lines(), strict=True):
        runs = [[run for run in comparison.of(row.name) if kinds[run.prompt] == kind] for kind in head]
        has = [sum(run.step_tokens for run in of) / sum(len(run.steps) for run in of) for of in runs]
        assert line[0].split(" baseline")[0] == row.name
        assert list(map(float, line[1:])) == pytest.approx(has, abs=0.006)
    assert [line[0].split(" baseline")[0] for line in speeds.lines()] == [row.name for row in comparison.rows]
    for table in (lengths, speeds):
        for column in range(1, 3):
            cells = [line.all("td")[column - 1] for line in table.all("tbody")[0].all("tr")]
            (best,) = [one.text for one in cells if "class" in one.attributes]
            assert float(best) == max(float(one.text) for one in cells)


def test_every_line_of_a_table_is_marked_by_its_own_row(comparison: Comparison) -> None:
    rows = tuple(replace(row, error="no") if row.name == "lookahead[window=3]" else row for row in comparison.rows)
    runs = tuple(
        replace(run, counterfactual={"block": float(len(run.steps))}) if run.row != "none" else run
        for run in comparison.runs
    )
    report = parsed(page(with_figures(replace(comparison, rows=rows, runs=runs))))
    for table in report.all("table"):
        for line in table.all("tr", "bad"):
            assert line.all("th")[0].text == "lookahead[window=3]"
        for line in table.all("tr", "baseline"):
            assert line.all("th")[0].text == "none baseline"
    assert len(report.all("tr", "bad")) == 5
    assert report.by_id("costs").all("table")[0].lines()[0][0] == "1"


def test_hundreds_of_prompts_stay_small_and_near_the_texts_size() -> None:
    found = big(["none", *[f"d{at}" for at in range(11)]])
    text = page(found)
    assert len(text.encode()) < 4e6
    assert f"{len(found.runs)} runs" in text
    assert len(token_data(parsed(text))["texts"]) == 240


@pytest.mark.parametrize(
    ("top", "labels"), [(3.2, "0 1 2 3 4"), (1.0, "0.0 0.2 0.4 0.6 0.8 1.0"), (11, "0.0 2.5 5.0 7.5 10.0 12.5")]
)
def test_axes_end_at_round_numbers(top: float, labels: str) -> None:
    found = axis("", [top])
    assert [tick.label for tick in found.ticks] == labels.split()
    assert found.at(0) == 0
    assert found.at(found.high) == 100
    assert found.high >= top


def test_axes_of_doublings_and_of_whole_numbers() -> None:
    found = doublings("", [1, 2, 48])
    assert [tick.label for tick in found.ticks] == ["1", "2", "4", "8", "16", "32", "64"]
    assert found.at(8) == 50
    assert [tick.label for tick in doublings("", [1]).ticks] == ["1", "2"]
    assert len(whole("", 64).ticks) <= 10
    assert axis("", []).ticks


@pytest.fixture
def small_files() -> Iterator[None]:
    """A limit on files that a report exceeds: writing fails in its midst, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_report_that_cannot_be_written_whole_is_not_written(
    comparison: Comparison, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "report.html"
    path.write_text("as before")
    request.getfixturevalue("small_files")
    with pytest.raises(InputError, match=r"the report .*report\.html can't be written: File too large"):
        write_report(comparison, path)
    assert path.read_text() == "as before"
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_places_where_no_report_can_be_are_named(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing/report.html can't be written: No such file or directory"):
        write_report(comparison, tmp_path / "missing" / "report.html")
    with pytest.raises(InputError, match="can't be written: Is a directory"):
        write_report(comparison, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_jinja2_the_extra_is_named(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(InputError, match=re.escape("pip install 'outrider[report]'")):
        write_report(comparison, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_report_of_a_saved_run(
    comparison: Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert run_app(app, ["report", str(DATA), "--html", str(out)], "outrider") == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text(encoding="utf-8") == page(comparison)


@pytest.mark.parametrize(
    ("run", "html", "said"),
    [
        (DATA, DATA, "would replace"),
        (DATA.with_name("missing.json"), Path("report.html"), "can't be read"),
        (DATA, DATA.with_name("missing") / "report.html", "there is no folder"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    run: Path, html: Path, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = DATA.read_bytes()
    assert run_app(app, ["report", str(run), "--html", str(html)], "outrider") == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert DATA.read_bytes() == before


def test_what_the_page_is_made_of_is_installed(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_wheel(ROOT, tmp_path / "out")).namelist()
    for name in ("page.html.j2", "charts.html.j2", "report.css", "report.js"):
        assert f"outrider/compare/report/{name}" in names
