"""The drafter `medusa`: published layouts, trees against the plain formula, and drafts that are right."""

import json
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from medusa_layouts import (
    BOTH,
    FILE,
    LAYOUTS,
    MAP,
    VLLM,
    Weights,
    faster_names,
    random_heads,
    random_weights,
    vllm_names,
    write,
    write_sharded,
)
from outrider import DraftBatch, DraftTree, DraftView, InputError, Target, TargetInfo, TokenView
from outrider_drafters.medusa.checkpoint import read_heads
from outrider_drafters.medusa.drafter import Medusa, MedusaOptions
from outrider_drafters.medusa.report import inspect_medusa
from outrider_drafters.medusa.trees import accuracies, preset
from support import lively, plain_loop, prompt_of, tiny_model, tiny_target


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_published_layout_is_read_tensor_by_tensor(layout: str, tmp_path: Path) -> None:
    weights, writer = LAYOUTS[layout]
    heads, id_map = read_heads(writer(tmp_path, weights), tiny_target().info)
    assert len(heads.blocks) == len(weights.blocks)
    assert len(heads.lm_heads) == len(weights.outputs)
    held = heads.state_dict()
    for at, blocks in enumerate(weights.blocks):
        for layer, (weight, bias) in enumerate(blocks):
            assert torch.equal(held.pop(f"blocks.{at}.layers.{layer}.weight"), weight)
            assert bias is None or torch.equal(held.pop(f"blocks.{at}.layers.{layer}.bias"), bias)
    for at, rows in enumerate(weights.outputs):
        assert torch.equal(held.pop(f"lm_heads.{at}.weight"), rows)
    assert not held
    assert heads.shape.heads == len(weights.blocks)
    assert (id_map is None) == (weights.token_map is None)
    assert id_map is None or id_map.tolist() == weights.token_map.tolist()  # type: ignore[union-attr]


@torch.no_grad()
@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_and_texts_are_those_of_the_formula(layout: str, tmp_path: Path) -> None:
    weights, writer = LAYOUTS[layout]
    target, own = tiny_target(), tiny_target().model.lm_head.weight
    heads, _ = read_heads(writer(tmp_path, weights), target.info)
    states = torch.randn(4, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = heads.double()(states, len(weights.blocks))
    expected = [[weights.logits(state, head, own) for head in range(len(weights.blocks))] for state in states]
    assert torch.allclose(found, torch.stack([torch.stack(row) for row in expected]), atol=1e-10)
    prompt = prompt_of(9)
    result = outrider.generate(target, prompt, "medusa", {"heads": str(tmp_path)}, max_new_tokens=24, adaptive=False)
    assert list(result.token_ids) == plain_loop(target.model, prompt, 24)
    assert result.stats.num_draft_tokens > 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_inspection_says_what_is_there_and_whether_it_fits(layout: str, tmp_path: Path) -> None:
    weights, writer = LAYOUTS[layout]
    found = outrider.inspect_heads(writer(tmp_path, weights), replace(tiny_target().info, parts=None))
    assert (found.drafter, found.hidden_size, found.features, found.misfit) == ("medusa", 32, (2,), None)
    assert found.parts == f"{len(weights.blocks)} heads"
    assert found.details["output"] == {0: "the target's own", 1: "one for all"}.get(len(weights.outputs), "one a head")
    drafted = None if not weights.outputs else 64
    assert found.draft_vocab_size == (drafted if weights.token_map is None else 8)
    wider = replace(tiny_target().info, hidden_size=48, parts=None)
    misfit = outrider.inspect_heads(tmp_path, wider).misfit
    assert misfit is not None
    assert "the target's hidden width is 48" in misfit


def test_a_published_config_that_counts_too_few_heads_is_told(tmp_path: Path) -> None:
    folder = write(tmp_path, FILE, faster_names(random_weights(5)), medusa_num_heads=2)
    with pytest.warns(UserWarning, match=r"config.json says medusa_num_heads = 2, and the tensors say 5, which counts"):
        heads, _ = read_heads(folder, tiny_target().info)
    assert heads.shape.heads == 5


def _renamed(named: dict[str, torch.Tensor], old: str, new: str) -> dict[str, torch.Tensor]:
    return {(new if name == old else name): one for name, one in named.items()}


def _without(named: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {key: one for key, one in named.items() if key != name}


FASTER, IN_VLLM = faster_names(random_weights()), vllm_names(random_weights(bias=False))
SOME = vllm_names(random_weights(bias=False, token_map=MAP))


def _mapped(ids: Any) -> dict[str, torch.Tensor]:
    return SOME | {"token_map": torch.as_tensor(ids)}


Case = tuple[dict[str, torch.Tensor], dict[str, Any], str]

WRONG: dict[str, Case] = {
    "a key renamed": (
        _renamed(FASTER, "1.0.linear.bias", "1.0.linear.bios"),
        {},
        r"3 heads of 1 blocks: missing 1\.0\.linear\.bias, unexpected 1\.0\.linear\.bios",
    ),
    "a block dropped": (
        _without(_without(faster_names(random_weights(2, 2)), "1.1.linear.weight"), "1.1.linear.bias"),
        {},
        r"missing 1\.1\.linear\.bias, 1\.1\.linear\.weight",
    ),
    "an output dropped": (_without(FASTER, "2.1.weight"), {}, r"missing 2\.1\.weight"),
    "one added": (FASTER | {"3.norm": torch.ones(2)}, {}, r"unexpected 3\.norm"),
    "an output at the wrong place": (
        _renamed(FASTER, "0.1.weight", "0.2.weight"),
        {},
        r"missing 0\.1\.weight, unexp.*0\.2",
    ),
    "another layout's": (IN_VLLM | {"0.0.linear.weight": torch.ones(1)}, VLLM, r"unexpected 0\.0\.linear\.weight"),
    "outputs shared without a word": (
        vllm_names(random_weights(bias=False, outputs=1)),
        VLLM,
        r"missing lm_heads\.1\.weight, lm_heads\.2\.weight",
    ),
    "another width": (
        faster_names(random_weights(hidden=48)),
        {},
        rf"{FILE}: '0\.0\.linear\.\w+' has shape \[48.*\], and must have \[32.*\]: the target's hidden width is 32",
    ),
    "a larger vocabulary": (
        faster_names(random_weights(vocab=65)),
        {},
        r"'0\.1\.weight' has shape \[65, 32\], and must have \[64, 32\]: .*its vocabulary 64",
    ),
    "a smaller one without a map": (
        faster_names(random_weights(vocab=8)),
        {},
        r"has shape \[8, 32\].*a smaller vocabulary needs a 'token_map'",
    ),
    "a map of another length": (
        _mapped(MAP[:7]),
        VLLM,
        r"'lm_heads\.0\.weight' has shape \[8, 32\], and must have \[7, 32\]",
    ),
    "a map of two dimensions": (_mapped([MAP]), VLLM, r"'token_map' has shape \[1, 8\], and is a list of ids"),
    "an id twice": (_mapped([*MAP[:7], 3]), VLLM, r"'token_map' holds an id twice"),
    "an id beyond": (_mapped([*MAP[:7], 100]), VLLM, r"'token_map' holds ids that are not among the target's 64"),
    "an id below": (_mapped([*MAP[:7], -1]), VLLM, r"'token_map' holds ids that are not among the target's 64"),
    "a map of no ids": (_mapped([0.5] * 8), VLLM, r"'token_map' is torch.float32, and holds ids"),
    "more heads in the config": (
        FASTER,
        BOTH | {"medusa_num_heads": 4},
        r"says medusa_num_heads = 4, and the tensors say 3",
    ),
    "other blocks in the config": (
        FASTER,
        BOTH | {"medusa_num_layers": 2},
        r"medusa_num_layers = 2, and the tensors say 1",
    ),
    "version 2 with outputs": (FASTER, BOTH | {"version": "2"}, r"says version = '2', and the tensors say '1'"),
    "biases in the config": (
        IN_VLLM,
        VLLM | {"medusa_fc_bias": True},
        r"medusa_fc_bias = True, and the tensors say False",
    ),
    "one output in the config": (IN_VLLM, VLLM | {"original_lm_head": True}, r"original_lm_head = True, .* say False"),
    "another size in the config": (
        SOME,
        VLLM | {"truncated_vocab_size": 9},
        r"truncated_vocab_size = 9, and the tensors say 8",
    ),
    "no heads at all": (
        {"model.norm.weight": torch.ones(32)},
        {},
        r"holds no heads that a drafter knows; .* It holds medusa_lm_head.safetensors, and no config.json",
    ),
    "an unknown key": (FASTER, BOTH | {"medusa_gate": 1}, "unknown key medusa_gate, which may change"),
    "unknown keys of vLLM's": (IN_VLLM, VLLM | {"gate": 1, "scale": 2}, "unknown keys gate, scale, which may change"),
    "an unknown key among the model's": (
        faster_names(random_weights(), "medusa_head."),
        BOTH | {"medusa_gate": 1, "residual_multiplier": 2},
        "unknown key medusa_gate, which may change",
    ),
    "another width in the config": (IN_VLLM, VLLM | {"hidden_size": 48}, "hidden_size = 48, and the tensors say 32"),
    "a map without dimensions": (_mapped(3), VLLM, r"'token_map' has shape \[\], and is a list of ids"),
    "whole numbers": (
        FASTER | {"0.0.linear.weight": torch.ones(32, 32, dtype=torch.int8)},
        {},
        r"'0\.0\.linear\.weight' is I8, and a weight must be float16",
    ),
    "no number": (
        FASTER | {"1.1.weight": torch.full((64, 32), torch.inf)},
        {},
        r"'1\.1\.weight' holds numbers that are not finite",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_heads_are_refused_before_anything_is_generated(case: str, tmp_path: Path) -> None:
    named, config, error = WRONG[case]
    write(tmp_path, FILE, named, **config)
    with pytest.raises(InputError, match=error) as raised:
        outrider.make_drafter("medusa", {"heads": str(tmp_path)}, tiny_target().info)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("case", [name for name in WRONG if "map" in name or "id " in name or "key" in name])
def test_what_generate_refuses_does_not_fit(case: str, tmp_path: Path) -> None:
    named, config, error = WRONG[case]
    write(tmp_path, FILE, named, **config)
    for target in (None, tiny_target().info):
        assert re.search(error, _fault(tmp_path, target)) or target is None


def _fault(folder: Path, target: TargetInfo | None) -> str:
    """What is wrong with a folder, or doesn't fit the target."""
    try:
        found = inspect_medusa(folder, target)
    except InputError as refused:
        return str(refused)
    assert found is not None
    return str(found.misfit)


class _Payload:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_pickle_that_holds_code_is_refused_and_not_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    torch.save({**FASTER, "code": _Payload(mark)}, tmp_path / "medusa_lm_head.pt")
    with pytest.raises(InputError, match="medusa_lm_head.pt can.t be read: .*executed"):
        read_heads(tmp_path, tiny_target().info)
    (tmp_path / "medusa_lm_head.pt").write_bytes(pickle.dumps(_Payload(mark)))
    with pytest.raises(InputError, match=r"medusa_lm_head.pt"):
        read_heads(tmp_path, tiny_target().info)
    assert not mark.exists()


def test_shards_without_heads_stay_closed(tmp_path: Path) -> None:
    """Of a model's files only those with heads are opened."""
    write_sharded(tmp_path, {f"medusa_head.{name}": one for name, one in FASTER.items()})
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    heads, _ = read_heads(tmp_path, tiny_target().info)
    write(tmp_path, "model-00003.safetensors", {"lm_head.weight": torch.ones(64, 32)})
    listed["weight_map"]["lm_head.weight"] = "model-00003.safetensors"
    index.write_text(json.dumps(listed))
    again, _ = read_heads(tmp_path, tiny_target().info)
    assert all(torch.equal(one, other) for one, other in zip(heads.parameters(), again.parameters(), strict=True))


def _folder() -> str:
    return random_heads(32, 64)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, r"needs what was trained for this very model, .*medusa\[heads=FOLDER\]"),
        ({"heads": "/nowhere"}, "option heads: '/nowhere': no such folder"),
        ({"depth": 4}, "depth = 4, and there are 3 heads"),
        (
            {"tree": "mc_sim_7b_63"},
            "the tree 'mc_sim_7b_63' is 4 deep, and there are 3 heads .*depth = 3 cuts it",
        ),
        ({"tree": "mc_sim"}, "tree = 'mc_sim' is none of derived, dynamic, mc_sim_7b_63, and no file"),
        ({"tree": "mc_sim_7b_63", "branching": 3}, "branching belongs to tree = 'derived' and 'dynamic'"),
        ({"dtype": "int8"}, "dtype 'int8' is none of float64"),
        ({"nodes": 65}, "option nodes = 65"),
    ],
)
def test_bad_options_are_one_clear_line(options: dict[str, Any], error: str) -> None:
    given = options if "heads" in options or not options else {"heads": _folder(), **options}
    with pytest.raises(InputError, match=error):
        outrider.make_drafter("medusa", given, tiny_target().info)


def test_ranks_beyond_the_vocabulary_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "heads", FILE, SOME, **VLLM)
    (tmp_path / "tree.json").write_text(json.dumps([[8]]))
    with pytest.raises(InputError, match="takes rank 8, and the heads know 8 tokens"):
        outrider.make_drafter(
            "medusa", {"heads": str(tmp_path / "heads"), "tree": str(tmp_path / "tree.json")}, tiny_target().info
        )


def test_a_target_without_a_head_of_its_own_is_refused_for_heads_without_outputs(tmp_path: Path) -> None:
    target = outrider.load(lively("t5", num_decoder_layers=2, pad_token_id=0, decoder_start_token_id=0))
    write(tmp_path, FILE, faster_names(random_weights(outputs=0)))
    with pytest.raises(InputError, match="drafter 'medusa': .*no output embeddings"):
        outrider.make_drafter("medusa", {"heads": str(tmp_path)}, target.info)


def test_the_published_tree_is_as_its_facts_say() -> None:
    tree = preset("mc_sim_7b_63")
    assert len(tree) == 63
    assert tree.histogram == {1: 10, 2: 28, 3: 23, 4: 2}
    assert tree.leaves == 42
    assert tree.ranks == 10
    chances = accuracies(5, 10)
    for at, (first, five) in enumerate([(0.56, 0.78), (0.32, 0.56), (0.20, 0.42), (0.15, 0.34), (0.12, 0.30)]):
        assert chances[at][0] == pytest.approx(first)
        assert sum(chances[at][:5]) == pytest.approx(five)
        assert sum(chances[at]) < 1


@lru_cache(maxsize=4)
def fitted(kind: str, sharp: float = 8.0) -> tuple[Target, Weights, list[list[int]]]:
    """Heads that know a target's own texts, fitted in a second, and prompts of those texts."""
    model = tiny_model(0)
    with torch.no_grad():
        model.lm_head.weight *= sharp  # so that sampled texts are not far from those that were learned
    target = outrider.load(model)
    prompts = [prompt_of(6, seed) for seed in range(12)]
    texts = [[*prompt, *plain_loop(target.model, prompt, 40)] for prompt in prompts]
    with torch.no_grad():
        states = target.model(torch.tensor(texts), output_hidden_states=True).hidden_states[-1].float()
    weights = random_weights(3, outputs=0 if kind == "map" else None, token_map=None)
    if kind == "map":  # the tokens that come most
        common = torch.tensor(texts)[:, 6:].flatten().bincount(minlength=64).topk(40).indices.sort().values
        weights = Weights(weights.blocks, [], common)
    own = target.model.lm_head.weight.detach().float()
    rows = own if weights.token_map is None else own[weights.token_map]
    with torch.enable_grad():
        parameters = [
            one.requires_grad_() for blocks in weights.blocks for pair in blocks for one in pair if one is not None
        ]
        parameters += [one.requires_grad_() for one in weights.outputs]
        steps = torch.optim.Adam(parameters, lr=0.02)
        ids = torch.tensor(texts)
        for _ in range(150):
            loss = torch.zeros(())
            for head, blocks in enumerate(weights.blocks):
                inner = states[:, : -head - 2]
                for weight, bias in blocks:
                    inner = inner + torch.nn.functional.silu(torch.nn.functional.linear(inner, weight, bias))
                logits = inner @ (weights.outputs[head] if weights.outputs else rows).T
                wanted = ids[:, head + 2 :]
                if weights.token_map is not None:
                    place = torch.full((64,), -100)
                    place[weights.token_map] = torch.arange(len(weights.token_map))
                    wanted = place[wanted]
                loss = loss + torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
            steps.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
    done = [
        [(weight.detach(), None if bias is None else bias.detach()) for weight, bias in one] for one in weights.blocks
    ]
    return target, Weights(done, [one.detach() for one in weights.outputs], weights.token_map), prompts


@lru_cache(maxsize=4)
def fitted_folder(kind: str, base: Path, sharp: float = 8.0) -> str:
    return str(write(base / f"{kind}{sharp}", FILE, faster_names(fitted(kind, sharp)[1])))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heads")


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3, "seed": 3},
    {"temperature": 0.5, "top_k": 8, "seed": 4},
    {"temperature": 0.4, "seed": 5, "rule": "rejection"},
    {"temperature": 0.4, "seed": 6, "rule": "block"},
]
TREES: list[dict[str, Any]] = [
    {},
    {"tree": "dynamic"},
    {"tree": "mc_sim_7b_63", "depth": 3},
    {"branching": 1},
    {"nodes": 6, "coupled": False},
]


@pytest.mark.parametrize("kind", ["own", "map"])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_fitted_heads_are_right_where_random_ones_are_not(
    settings: dict[str, Any], tree: dict[str, Any], kind: str, base: Path
) -> None:
    target, _, prompts = fitted(kind)
    accepted = []
    for folder in (fitted_folder(kind, base), _folder()):
        results = outrider.generate_batch(
            target, prompts[:4], "medusa", {"heads": folder, **tree}, max_new_tokens=30, adaptive=False, **settings
        )
        accepted.append(sum(result.stats.num_accepted_draft_tokens for result in results))
        if settings.get("rule", "match") == "match":
            plain = outrider.generate_batch(target, prompts[:4], "none", max_new_tokens=30, adaptive=False, **settings)
            assert [one.token_ids for one in results] == [one.token_ids for one in plain]
    assert accepted[0] > 1.5 * accepted[1]


class _Watched(Medusa):
    """Keeps the trees that it proposed, with the texts that they hang from."""

    def __init__(self, target: Any, options: MedusaOptions) -> None:
        super().__init__(target, options)
        self.seen: list[tuple[list[int], DraftView, DraftTree]] = []
        self.asked = 0
        self._heads.register_forward_pre_hook(lambda module, args: self._count(args[0]))

    def _count(self, states: torch.Tensor) -> None:
        self.asked += len(states)

    def propose(self, batch: DraftBatch) -> outrider.TreeBatch:
        trees = super().propose(batch)
        for view, tree in zip(batch.rows, trees.unpack(), strict=True):
            self.seen.append((list(view.ids), replace(view, ids=TokenView(view.ids)), tree))
        return trees


def _paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[one] for one in tree.path(node)) for node in range(len(tree))}


@torch.no_grad()
@pytest.mark.parametrize("tree", [{}, {"tree": "dynamic"}])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 2}])
@pytest.mark.parametrize("kind", ["own", "map"])
def test_trees_are_those_of_the_formula(kind: str, settings: dict[str, Any], tree: dict[str, Any], base: Path) -> None:
    """From the model's own forward over the text: the state before the root, every head's candidates by log q + noise."""
    target, weights, prompts = fitted(kind, 1.0)
    drafter = _Watched(target.info, MedusaOptions(heads=fitted_folder(kind, base, 1.0), nodes=12, branching=4, **tree))
    outrider.generate_batch(
        target, [prompts[0], prompts[1][:3]], drafter, max_new_tokens=14, adaptive=False, **settings
    )
    own = target.model.lm_head.weight
    ids = torch.arange(64) if weights.token_map is None else weights.token_map
    checked = 0
    for text, view, found in drafter.seen:
        state = target.model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states[-1][0, -1]
        raw, depth = [], min(3, view.max_depth)
        for head in range(depth):
            scores = view.law(weights.logits(state, head, own)[None])[0].double().log()
            noise = view.noise(head + 1, ids)
            raw.append(scores if noise is None else scores + noise)
        if tree:
            # The factor of coupled scores is learned, so that which nodes stay is not known beforehand; greedily it is.
            if not settings:
                assert _paths(found) == _best(raw, ids, 12, 4)
            assert all(token in ids[raw[at].topk(4).indices] for path in _paths(found) for at, token in enumerate(path))
        else:
            ranks = [ids[one.topk(4).indices].tolist() for one in raw]
            shape = outrider.Choices.derived(accuracies(3, 4), 12).within(depth, 64)
            assert _paths(found) == {tuple(ranks[at][rank] for at, rank in enumerate(path)) for path in shape.paths}
        assert found.coupled == (bool(settings) and len(found) > 0)
        checked += 1
    assert checked == len(drafter.seen) > 6
    assert drafter.asked == sum(view.max_depth > 0 for _, view, _ in drafter.seen)  # a state a row and step


def _best(raw: list[torch.Tensor], ids: torch.Tensor, nodes: int, branching: int) -> set[tuple[int, ...]]:
    """The likeliest paths of all, by a plain list of them."""
    scores: dict[tuple[int, ...], float] = {}
    front: dict[tuple[int, ...], float] = {(): 0.0}
    for own in raw:
        values, places = own.topk(branching)
        pairs = list(zip(ids[places].tolist(), values.tolist(), strict=True))
        front = {(*path, token): score + value for path, score in front.items() for token, value in pairs}
        scores |= front
    return set(sorted(scores, key=lambda path: (-scores[path], len(path)))[:nodes])


def test_a_target_whose_token_is_zero_gets_no_padding_accepted(tmp_path: Path) -> None:
    """Token 0 is what pads short paths elsewhere: here the target says it at leaves, among rows of different depths."""
    model = tiny_model(1)
    with torch.no_grad():
        model.lm_head.weight[0] *= 2.5
    target, prompts = outrider.load(model), [prompt_of(length, length) for length in (3, 7, 12)]
    texts = [plain_loop(model, prompt, 30) for prompt in prompts]
    assert sum(text.count(0) for text in texts) > 10
    write(tmp_path, FILE, faster_names(random_weights()))
    for tree in TREES:
        results = outrider.generate_batch(
            target, prompts, "medusa", {"heads": str(tmp_path), **tree}, max_new_tokens=30, adaptive=False
        )
        assert [list(result.token_ids) for result in results] == texts


KINDS: dict[str, Callable[[], Any]] = {
    "tree": lambda: tiny_model(0),
    "soft cap": lambda: lively("gemma2"),
    "paths": lambda: lively("bloom"),
    "replay": lambda: lively("lfm2", layer_types=["conv", "full_attention"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_tiers_and_models_with_caps_are_served(kind: str, tmp_path: Path) -> None:
    model = KINDS[kind]()
    target = outrider.load(model)
    write(tmp_path, FILE, faster_names(random_weights(outputs=0)))
    drafter = _Watched(target.info, MedusaOptions(heads=str(tmp_path)))
    result = outrider.generate(target, prompt_of(9), drafter, max_new_tokens=16, adaptive=False)
    assert list(result.token_ids) == plain_loop(model, prompt_of(9), 16)
    assert all(len(tree) for _, view, tree in drafter.seen if view.max_depth)


def test_sessions_and_chunks_bring_the_state_that_counts(base: Path) -> None:
    target, _, prompts = fitted("own")
    options = {"heads": fitted_folder("own", base)}
    whole = outrider.generate(target, prompts[0], "medusa", options, max_new_tokens=30, adaptive=False)
    parts = outrider.generate(
        target, prompts[0], "medusa", options, max_new_tokens=30, adaptive=False, prefill_chunk_size=2
    )
    assert parts.token_ids == whole.token_ids
    assert parts.stats.num_accepted_draft_tokens == whole.stats.num_accepted_draft_tokens
    with outrider.session(target, "medusa", options, max_new_tokens=12, adaptive=False) as turns:
        for length in (9, 4, 6):
            before = [*turns.ids, *prompt_of(length, length)]
            result = turns.generate(prompt_of(length, length))
            assert list(result.token_ids) == plain_loop(target.model, before, 12)
            assert result.stats.num_draft_tokens > 0
            turns.truncate(len(turns.ids) - 5)


def test_a_row_without_a_usable_state_gets_an_empty_tree() -> None:
    drafter = Medusa(tiny_target().info, MedusaOptions(heads=_folder()))
    batch = DraftBatch((DraftView(0, TokenView([1, 2, 3]), 5, 64),))
    assert drafter.propose(batch).unpack() == [DraftTree()]


def test_dtype_of_the_heads_is_a_choice() -> None:
    for dtype, wanted in ((None, torch.float64), ("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        drafter = Medusa(tiny_target().info, MedusaOptions(heads=_folder(), dtype=dtype))
        assert {one.dtype for one in drafter._heads.parameters()} == {wanted}
        result = outrider.generate(tiny_target(), prompt_of(5), drafter, max_new_tokens=10, adaptive=False)
        assert list(result.token_ids) == plain_loop(tiny_target().model, prompt_of(5), 10)


GPU = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize(
    ("device", "heads"),
    [("cpu", "cpu"), *[pytest.param(*pair, marks=GPU) for pair in (("cuda", None), ("cuda", "cpu"), ("cpu", "cuda"))]],
)
@pytest.mark.parametrize("kind", ["own", "map"])
@pytest.mark.parametrize("settings", SETTINGS[:4])
def test_heads_work_on_any_device(
    settings: dict[str, Any], kind: str, device: str, heads: str | None, base: Path
) -> None:
    folder = fitted_folder(kind, base)
    model = tiny_model(0)
    model.lm_head.weight.data *= 8
    target = outrider.load(model.to(device))
    for tree in TREES[:2]:
        options = {"heads": folder, "device": heads, **tree}
        result = outrider.generate(
            target, prompt_of(6), "medusa", options, max_new_tokens=30, adaptive=False, **settings
        )
        assert result.stats.num_accepted_draft_tokens > 3
        if settings.get("rule", "match") == "match":
            plain = outrider.generate(target, prompt_of(6), "none", max_new_tokens=30, adaptive=False, **settings)
            assert result.token_ids == plain.token_ids


def test_the_tree_is_derived_from_accuracies_that_were_measured(tmp_path: Path) -> None:
    """Where the heads' folder tells them; the second head's first rank is worth more here than the first head's second."""
    target = tiny_target()
    folder = Path(shutil.copytree(random_heads(target.info.hidden_size, target.info.vocab_size), tmp_path / "heads"))
    config = json.loads((folder / "config.json").read_text()) if (folder / "config.json").exists() else {}
    heads = outrider.inspect_heads(folder).parts.split()[0]
    shares = [[0.5, 0.1]] + [[0.9, 0.05]] * (int(heads) - 1)
    (folder / "config.json").write_text(json.dumps(config | {"rank_accuracies": shares}))
    drafter: Any = outrider.make_drafter("medusa", {"heads": str(folder), "nodes": 3}, target.info)
    assert set(drafter._choices.paths) == {(0,), (0, 0), (0, 0, 0)}
    for wrong in ([[0.5]], [[0.1, 0.5]] * int(heads), "x", [["a"]] * int(heads)):
        (folder / "config.json").write_text(json.dumps(config | {"rank_accuracies": wrong}))
        with pytest.raises(InputError, match="rank_accuracies is .*, and must be .* lists of falling shares"):
            outrider.make_drafter("medusa", {"heads": str(folder)}, target.info)
