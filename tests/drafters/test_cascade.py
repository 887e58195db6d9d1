"""The drafter `cascade`: whichever part is heard, the text is the target's own and every part hears what became of its tree."""

import itertools
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
import torch

import outrider
from outrider import (
    POINT,
    DraftBatch,
    DrafterOptions,
    DraftLaws,
    DraftTree,
    DraftView,
    Needs,
    RowDrafter,
    RowStart,
    Target,
    TreeBatch,
)
from outrider.draft.contract import API
from outrider.verify.decisions import Keyed
from support import (
    VOCAB,
    Script,
    Scripted,
    partly_right_tree,
    plain_loop,
    prompt_of,
    right_chain,
    right_tree,
    tiny_model,
    tiny_target,
    word_of,
    wrong_chain,
    wrong_tree,
)

MODES = ["first", "merge"]
NAMES = [record.name for record in outrider.drafters()]
SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_k": 20, "repetition_penalty": 1.1, "seed": 5}


class Looking(Scripted):
    """Wants features, and counts what it is asked."""

    def __init__(self, target: Target, script: Script, needs: Needs = Needs()) -> None:  # noqa: B008
        super().__init__(target, script)
        self.wanted, self.asked = needs, 0

    def needs(self) -> Needs:
        return self.wanted

    def propose(self, batch: DraftBatch) -> TreeBatch:
        self.asked += len(batch.rows)
        return super().propose(batch)


def _run(
    target: Target, prompt: Sequence[int], parts: list[Any], mode: str = "first", **options: Any
) -> outrider.Result:
    own: dict[str, Any] = {name: options.pop(name) for name in ("min_tokens", "nodes") if name in options}
    settings: dict[str, Any] = {"adaptive": False, "max_new_tokens": 24, "seed": 0} | options
    return outrider.generate(target, prompt, "cascade", {"drafters": parts, "mode": mode, **own}, **settings)


def _text(target: Target, prompt: list[int], count: int = 24) -> list[int]:
    return prompt + plain_loop(target.model, prompt, count)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_can_be_a_part(name: str, mode: str) -> None:
    target, prompt = tiny_target(1, 0.1), prompt_of(9, 1)
    text = _text(target, prompt)
    for script in (wrong_tree, partly_right_tree):
        for order in (1, -1):
            parts = [word_of(name, target), Scripted(target, script(text))][::order]
            assert list(_run(target, prompt, parts, mode).token_ids) == text[9:]
    sampled = _run(target, prompt, [word_of(name, target), Scripted(target, wrong_chain(text))], mode, **SAMPLED)
    assert sampled.token_ids == outrider.generate(target, prompt, "none", max_new_tokens=24, **SAMPLED).token_ids


@pytest.mark.parametrize("mode", MODES)
def test_a_cascade_accepts_what_its_good_part_does(mode: str) -> None:
    """First: the good part is asked where the other is silent. Merge: it is accepted beside one that is always wrong."""
    target, prompt = tiny_target(0), prompt_of(8)
    text = _text(target, prompt)
    alone = outrider.generate(target, prompt, Scripted(target, right_chain(text)), adaptive=False, max_new_tokens=24)
    dead = (lambda ids: DraftTree()) if mode == "first" else wrong_tree(text)
    result = _run(target, prompt, [Scripted(target, dead), Scripted(target, right_chain(text))], mode)
    assert result.token_ids == alone.token_ids
    assert result.stats.acceptance_histogram == alone.stats.acceptance_histogram
    assert result.stats.num_accepted_draft_tokens == alone.stats.num_accepted_draft_tokens > 15


def test_a_later_part_is_asked_for_rows_that_nobody_served() -> None:
    target, prompt = tiny_target(0), prompt_of(8)
    text = _text(target, prompt)
    every = [Looking(target, right_chain(text)), Looking(target, right_chain(text))]
    _run(target, prompt, every)
    assert every[0].asked > 3
    assert every[1].asked == 0
    assert [len(outcome.tree) for outcome in every[1].outcomes] == [0] * len(every[0].outcomes)
    sometimes = Looking(target, lambda ids: DraftTree.chain(text[len(ids) :][:2]) if len(ids) % 2 else DraftTree())
    later = Looking(target, right_chain(text, 1))
    result = _run(target, prompt, [sometimes, later])
    silent = sum(not len(outcome.tree) for outcome in sometimes.outcomes[1:])
    assert later.asked == silent > 0
    assert sometimes.asked == result.stats.num_spec_steps > silent


def test_rows_of_a_batch_are_served_by_different_parts_as_alone() -> None:
    target, prompts = tiny_target(0), [prompt_of(5, 1), prompt_of(8, 2), prompt_of(6, 3)]
    texts = [_text(target, prompt) for prompt in prompts]

    def part(odd: int) -> Looking:
        def script(ids: Sequence[int]) -> DraftTree:
            (text,) = [text for text in texts if text[:5] == list(ids[:5])]
            return partly_right_tree(text)(ids) if len(ids) % 2 == odd else DraftTree()

        return Looking(target, script)

    parts = [part(0), part(1)]
    results = outrider.generate_batch(
        target, prompts, "cascade", {"drafters": parts}, adaptive=False, max_new_tokens=24
    )
    for prompt, text, result in zip(prompts, texts, results, strict=True):
        assert list(result.token_ids) == text[len(prompt) :]
        alone = _run(target, prompt, [part(0), part(1)])
        assert alone.stats.acceptance_histogram == result.stats.acceptance_histogram
        assert result.stats.num_accepted_draft_tokens > 3
    steps = sum(result.stats.num_spec_steps for result in results)
    assert 0 < parts[1].asked < steps


def test_a_short_draft_counts_only_where_nobody_has_a_longer() -> None:
    target, prompt = tiny_target(0), prompt_of(8)
    text = _text(target, prompt)
    short, long = Looking(target, right_chain(text, 2)), Looking(target, right_chain(text, 4))
    _run(target, prompt, [short, long], min_tokens=3)
    lengths = [len(outcome.tree) for outcome in long.outcomes]
    assert set(lengths[1:4]) == {4}
    assert {len(outcome.tree) for outcome in short.outcomes} <= {0, 1, 2}
    assert len(short.outcomes[1].tree) == 0
    alone = Looking(target, right_chain(text, 2))
    result = _run(target, prompt, [alone, Scripted(target, lambda ids: DraftTree())], min_tokens=3)
    assert len(alone.outcomes[1].tree) == 2
    assert result.stats.num_accepted_draft_tokens > 10
    last = Looking(target, right_chain(text, 1))
    _run(target, prompt, [alone, last], min_tokens=3)
    assert len(last.outcomes[1].tree) == 1
    counts = Looking(target, right_chain(text, 2))
    _run(target, prompt, [counts, long], min_tokens=2)
    assert len(counts.outcomes[1].tree) == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("nodes", [64, 9])
def test_every_part_hears_of_its_own_tree_with_its_features(mode: str, nodes: int) -> None:
    """States of committed tokens are those of a full forward, and those of nodes are those of their paths run alone."""
    model = tiny_model(1)
    target, prompt = outrider.load(model), prompt_of(8)
    text = _text(target, prompt, 16)
    needs = [Needs(), Needs(hidden=frozenset({1, 2})), Needs(hidden=frozenset({0}), logits=True)]
    scripts = [wrong_tree(text), right_tree(text, 3), partly_right_tree(text, 2)]
    parts = [Looking(target, script, wanted) for script, wanted in zip(scripts, needs, strict=True)]
    options = {"nodes": nodes} if mode == "merge" else {"min_tokens": 4}
    _run(target, prompt, parts, mode, adaptive=False, max_new_tokens=16, prefill_chunk_size=3, **options)
    assert all(outcome.features is None and outcome.tokens for outcome in parts[0].outcomes)
    assert len(parts[1].outcomes) == len(parts[0].outcomes) + 2  # two chunks before the first token's
    with torch.no_grad():
        full = model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
    for part in parts[1:]:
        for layer in part.wanted.hidden:
            states = [outcome.features.hidden(layer) for outcome in part.outcomes if outcome.features is not None]
            assert torch.allclose(torch.cat(states), full[layer][0], atol=1e-9)
    for part in parts:
        ids = list(prompt)
        for outcome in part.outcomes:
            tree = outcome.tree
            walked = [tree.tokens[node] for node in outcome.path]
            assert walked == list(outcome.tokens[: len(walked)])
            assert tree.path(outcome.path[-1] if outcome.path else -1) == outcome.path
            for node in range(len(tree) if outcome.features else 0):
                path = [tree.tokens[step] for step in tree.path(node)]
                with torch.no_grad():
                    alone = model(torch.tensor([[*ids, *path]]), output_hidden_states=True)
                for layer in part.wanted.hidden:
                    state = outcome.features.hidden(layer, every=True)[node + 1]  # type: ignore[union-attr]
                    assert torch.allclose(state, alone.hidden_states[layer][0, -1], atol=1e-9)
                if part.wanted.logits:
                    logits = outcome.features.logits  # type: ignore[union-attr]
                    assert logits is not None
                    assert torch.allclose(logits[node + 1], alone.logits[0, -1], atol=1e-9)
            ids += outcome.tokens
    if mode == "merge":
        assert any(len(outcome.path) > 1 for outcome in parts[1].outcomes)
        assert any(0 < len(outcome.path) + 1 < len(outcome.tokens) for outcome in parts[2].outcomes)
        if nodes == 9:
            assert all(len(outcome.tree) <= 9 for part in parts for outcome in part.outcomes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", [0, 1])
def test_n_grams_of_lookahead_s_window_are_accepted_in_a_cascade(mode: str, place: int) -> None:
    """With an empty pool and nothing from the text, all that is accepted came out of the window."""
    accepted = 0
    for seed in range(6):
        target, prompt = tiny_target(seed), list(range(12))
        text = _text(target, prompt, 60)
        silent = Looking(target, wrong_chain(text, 2) if mode == "merge" else lambda ids: DraftTree())
        parts: list[Any] = ["lookahead[prompt=false]"]
        parts.insert(place, silent)
        result = _run(target, prompt, parts, mode, adaptive=False, max_new_tokens=60)
        assert list(result.token_ids) == text[12:]
        assert all(not outcome.tree.scouts for outcome in silent.outcomes)
        accepted += result.stats.num_accepted_draft_tokens
    assert accepted > 30


def test_lookahead_s_window_waits_where_another_part_is_heard() -> None:
    """A window that did not ride must not take in logits of other nodes."""
    accepted = 0
    for seed in range(6):
        target, prompt = tiny_target(seed), list(range(12))
        text = _text(target, prompt, 60)
        right = right_chain(text, 1)
        often = Looking(target, partial(lambda right, ids: right(ids) if len(ids) % 3 == 0 else DraftTree(), right))
        result = _run(target, prompt, [often, "lookahead[prompt=false]"], adaptive=False, max_new_tokens=60)
        assert list(result.token_ids) == text[12:]
        used = sum(len(outcome.path) for outcome in often.outcomes)
        accepted += result.stats.num_accepted_draft_tokens - used
    assert accepted > 5


@pytest.mark.parametrize("mode", MODES)
def test_a_cascade_in_a_cascade_passes_everything_on(mode: str) -> None:
    target, prompt = tiny_target(0), prompt_of(8)
    text = _text(target, prompt)
    wanted = Needs(hidden=frozenset({2}), logits=True)
    good, dead = Looking(target, right_chain(text, 4), wanted), Looking(target, wrong_tree(text))
    inner = {"name": "cascade", "options": {"drafters": [dead, good, "lookahead[window=3,ngram=3]"], "mode": "merge"}}
    options: dict[str, Any] = {"nodes": 8} if mode == "merge" else {}
    result = _run(target, prompt, [Looking(target, wrong_tree(text, 2)) if options else "none", inner], mode, **options)
    assert list(result.token_ids) == text[8:]
    assert sum(len(outcome.path) for outcome in good.outcomes) == result.stats.num_accepted_draft_tokens > 8
    states = [outcome.features.hidden(2) for outcome in good.outcomes if outcome.features is not None]
    with torch.no_grad():
        full = target.model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
    assert torch.allclose(torch.cat(states), full[2][0], atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_turns_of_a_session_reach_every_part(mode: str) -> None:
    target = tiny_target(1, 0.1)
    options = {"drafters": ["ngram", "lookahead", word_of("draft-model", target)], "mode": mode}
    accepted = 0
    with outrider.session(target, "cascade", options, adaptive=False, max_new_tokens=12) as talk:
        for seed, cut in ((1, None), (2, 14), (3, 3), (4, None)):
            if cut is not None:
                talk.truncate(cut)
            before = [*talk.ids, *prompt_of(6, seed)]
            result = talk.generate(prompt_of(6, seed))
            assert list(result.token_ids) == plain_loop(target.model, before, 12)
            accepted += result.stats.num_accepted_draft_tokens
    assert accepted > 20


class Dice(RowDrafter[DrafterOptions]):
    """Draws a chain from a law over a draft vocabulary of its own."""

    name: ClassVar[str] = "dice"
    requires_api: ClassVar[tuple[int, int]] = API
    law: ClassVar[torch.Tensor] = torch.tensor([0.4, 0.3, 0.2, 0.1]).double()
    ids: ClassVar[torch.Tensor] = torch.tensor([0, 1, 3, 4])
    even: ClassVar[int | None] = None

    def propose_row(self, view: DraftView) -> DraftTree:
        if self.even is not None and len(view.ids) % 2 != self.even:
            return DraftTree()
        depth = min(2, view.max_depth)
        drawn = [view.draw(self.law, 1, index)[0] for index in range(depth)]
        tokens, parents = tuple(self.ids[drawn].tolist()), tuple(range(-1, depth - 1))
        if not view.wants_q:
            return DraftTree(tokens, parents)
        return DraftTree(tokens, parents, (0,) * depth, DraftLaws(self.law[None], self.ids))


class OtherDice(Dice):
    """Other ids, another width."""

    name: ClassVar[str] = "other-dice"
    law: ClassVar[torch.Tensor] = torch.tensor([0.2, 0.2, 0.6]).double()
    ids: ClassVar[torch.Tensor] = torch.tensor([4, 2, 1])


class EvenDice(Dice):
    name: ClassVar[str] = "even-dice"
    even: ClassVar[int | None] = 0


class OddDice(OtherDice):
    name: ClassVar[str] = "odd-dice"
    even: ClassVar[int | None] = 1


@pytest.mark.parametrize(("mode", "rule"), [("first", "rejection"), ("merge", "block")])
def test_sampled_text_follows_the_model_s_law(mode: str, rule: str) -> None:
    """Chi-square over 25 pairs of tokens: critical value at 1e-9 with 24 degrees of freedom."""
    runs, start = 600, [1, 4, 2]
    target = outrider.load(tiny_model(3, 0.4, vocab_size=5))
    law = dict.fromkeys(itertools.product(range(5), repeat=2), 0.0)
    for sequence in itertools.product(range(5), repeat=3):
        with torch.no_grad():
            chances = target.model(torch.tensor([[*start, *sequence]])).logits[0, 2:-1].softmax(-1)
        law[sequence[1:]] += float(chances[range(3), list(sequence)].prod())
    counts, accepted = dict.fromkeys(law, 0), 0
    parts = [Dice, OtherDice] if mode == "merge" else [EvenDice, OddDice]
    for seed in range(runs):
        options: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "rule": rule, "seed": seed}
        result = _run(target, start, parts, mode, adaptive=False, max_new_tokens=4, **options)
        counts[result.token_ids[1:3]] += 1
        accepted += result.stats.num_accepted_draft_tokens
    assert sum((counts[key] - runs * p) ** 2 / (runs * p) for key, p in law.items()) < 91.0
    assert accepted > runs / 4


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("mode", MODES)
def test_rows_with_different_laws_are_verified_together(mode: str, rule: str) -> None:
    target, prompts = tiny_target(3, 0.05), [prompt_of(5, 1), prompt_of(6, 2), prompt_of(7, 3)]
    options: dict[str, Any] = {
        "temperature": 2.0,
        "top_k": 0,
        "rule": rule,
        "seed": 3,
        "adaptive": False,
        "max_new_tokens": 40,
    }
    parts = {"drafters": [EvenDice, "ngram", OddDice], "mode": mode}
    runs = [outrider.generate_batch(target, prompts, "cascade", parts, **options) for _ in range(2)]
    assert [result.token_ids for result in runs[0]] == [result.token_ids for result in runs[1]]
    for result, prompt in zip(runs[0], prompts, strict=True):
        alone = outrider.generate(target, prompt, "cascade", parts, **(options | {"seed": result.seed}))
        assert alone.token_ids == result.token_ids
        assert alone.stats.acceptance_histogram == result.stats.acceptance_histogram
        assert result.stats.num_draft_tokens > 20


def test_a_part_that_is_heard_alone_keeps_its_laws_and_merged_ones_do_not() -> None:
    target = tiny_target(0)
    view = DraftView(0, outrider.TokenView([1, 2]), 5, 64, "rejection", Keyed(1, 2), None)
    others: list[Any] = ["none", OtherDice]
    for mode, other in itertools.product(MODES, others):
        drafter = outrider.make_drafter("cascade", {"drafters": [Dice, other], "mode": mode}, target.info)
        drafter.begin([RowStart(0, view.ids, 0)])
        (tree,) = drafter.propose(DraftBatch((view,))).unpack()
        assert len(tree) >= 2
        drawn = tree.q_rows and POINT not in tree.q_rows
        assert bool(drawn) == (mode == "first" or other == "none")


@pytest.mark.parametrize("mode", MODES)
def test_coupled_rows_beside_others(mode: str) -> None:
    target, prompts = tiny_target(1, 0.1), [prompt_of(9, 1), prompt_of(5, 2)]
    parts = {"drafters": ["ngram", word_of("draft-model", target)], "mode": mode}
    results = outrider.generate_batch(target, prompts, "cascade", parts, adaptive=False, max_new_tokens=30, **SAMPLED)
    for prompt, result in zip(prompts, results, strict=True):
        plain = outrider.generate(target, prompt, "none", max_new_tokens=30, **(SAMPLED | {"seed": result.seed}))
        assert result.token_ids == plain.token_ids
        assert result.stats.num_accepted_draft_tokens > 15


def _raise(*_: Any) -> Any:
    raise RuntimeError("no idea")


@pytest.mark.parametrize("method", ["needs", "begin", "propose", "observe"])
def test_a_part_that_raises_is_named_and_all_parts_are_ended(method: str) -> None:
    target, prompt = tiny_target(0), prompt_of(5)
    parts = [Scripted(target, lambda ids: DraftTree()) for _ in range(3)]
    setattr(parts[1], method, _raise)
    message = rf"^drafter 'cascade': part 'scripted' failed in {method}: RuntimeError: no idea$"
    with pytest.raises(outrider.DrafterError, match=message):
        _run(target, prompt, parts)
    ends = {"needs": [0, 0, 0], "begin": [1, 1, 0]}.get(method, [1, 1, 1])
    assert [len(part.ended) for part in parts] == ends


def test_a_part_that_fails_in_end_keeps_nobody_from_ending() -> None:
    target, prompt = tiny_target(0), prompt_of(5)
    parts = [Scripted(target, lambda ids: DraftTree()) for _ in range(3)]
    vars(parts[0])["end"] = _raise
    with pytest.warns(UserWarning, match="part 'scripted' failed in end: RuntimeError: no idea"):
        _run(target, prompt, parts)
    assert [len(part.ended) for part in parts[1:]] == [1, 1]


def test_a_part_whose_tree_breaks_the_contract_is_named() -> None:
    target, prompt = tiny_target(0), prompt_of(5)
    wild = Scripted(target, lambda ids: DraftTree.chain([VOCAB]))
    with pytest.raises(outrider.DrafterError, match="drafter 'cascade': part 'scripted' failed in propose: .*token 64"):
        _run(target, prompt, ["ngram", wild])
    deep = Needs(hidden=frozenset({9}))
    with pytest.raises(outrider.DrafterError, match="part 'scripted' failed in needs: .*layer 9"):
        _run(target, prompt, ["ngram", Looking(target, lambda ids: DraftTree(), deep)])


def test_nothing_is_kept_of_rows_that_ended() -> None:
    target, prompt = tiny_target(0), prompt_of(5)
    drafter = outrider.make_drafter("cascade[ngram,lookahead,mode=merge]", None, target.info)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outrider.generate(target, prompt, drafter, adaptive=False, max_new_tokens=9)
        with outrider.stream(target, prompt, drafter, adaptive=False, max_new_tokens=9) as steps:
            next(steps)
    assert drafter._rows == {}  # type: ignore[attr-defined]
    assert all(part.drafter._rows == {} for part in drafter.parts)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'drafters' is missing: two or more"),
        ({"drafters": []}, "option drafters: a cascade has two drafters or more"),
        ({"drafters": ["ngram"]}, "option drafters: a cascade has two drafters or more"),
        ({"drafters": "ngram"}, "option drafters = 'ngram'"),
        ({"drafters": ["ngram", "ngrm"]}, r"option drafters.1: unknown drafter 'ngrm'. Did you mean 'ngram'\?"),
        (
            {"drafters": ["ngram[max_m=3]", "none"]},
            "option drafters.0: drafter 'ngram': unknown option 'max_m'. Did you",
        ),
        ({"drafters": ["none", {"nam": "x"}]}, "option drafters.1: drafter: unknown key 'nam'; write name ="),
        ({"drafters": ["none", 3]}, "option drafters.1: a drafter is a name, .* not 3"),
        ({"drafters": ["none", "ngram[max_n"]}, r"option drafters.1: drafter 'ngram\[max_n': it must end with '\]'"),
        ({"drafters": ["none", "cascade[none,x]"]}, "option drafters.1: drafter 'cascade': option drafters.1: unknown"),
        ({"drafters": ["none", "ngram"], "mode": "best"}, "option mode = 'best': input should be 'first' or 'merge'"),
        ({"drafters": ["none", "ngram"], "nodes": 3}, "nodes = 3 is for mode 'merge' only, and this is 'first'"),
        ({"drafters": ["none", "ngram"], "mode": "merge", "min_tokens": 3}, "min_tokens = 3 is for mode 'first' only"),
        ({"drafters": ["none", "ngram"], "mode": "merge", "nodes": 0}, "option nodes = 0"),
    ],
)
def test_wrong_options_are_named_before_anything_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(outrider.InputError, match=f"drafter 'cascade': {message}") as error:
        outrider.choose("cascade", options)
    assert "\n" not in str(error.value)


def test_one_object_can_t_be_two_parts() -> None:
    target = tiny_target(0)
    same = Scripted(target, lambda ids: DraftTree())
    inner = {"name": "cascade", "options": {"drafters": [same, "lookahead"]}}
    with pytest.raises(outrider.InputError, match="one drafter object is there twice"):
        outrider.choose("cascade", {"drafters": [same, inner]})
    with pytest.raises(outrider.InputError, match="one drafter object is there twice"):
        outrider.choose("cascade", {"drafters": [same, same]})
    with pytest.raises(outrider.InputError, match="drafter 'scripted' was made for another target"):
        _run(tiny_target(0, vocab_size=32), [1], ["ngram", same])
