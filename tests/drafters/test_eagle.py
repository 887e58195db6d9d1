"""The drafters `eagle` and `eagle3`: what they propose is their network's on the target's own features."""

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from eagle_layouts import eagle, eagle3, random_eagle, write
from levels import expected_paths, paths_of
from outrider import DraftBatch, DraftTree, DraftView, Shape, Target, TokenView, TreeBatch
from outrider.config import load_config
from outrider.plugins.words import read_options
from outrider_drafters.eagle.checkpoint import read_eagle
from outrider_drafters.eagle.drafter import Eagle, Eagle3, EagleOptions
from support import plain_loop, prompt_of, tiny_target

METHODS = {"eagle": Eagle, "eagle3": Eagle3}
PROMPTS = [prompt_of(6, seed) for seed in range(6)]


def served() -> Target:
    return tiny_target(0, spread=0.15)


def causal(layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


@lru_cache(maxsize=4)
@torch.enable_grad()
def fitted(method: str, folder: Path) -> str:
    """Heads that were taught the target's own texts for a few seconds."""
    target = served()
    model: Any = target.model
    start = random_eagle(target.info, method)
    config, network = read_eagle(start, target.info)
    network = network.float().requires_grad_(True)
    texts = torch.tensor([[*prompt, *plain_loop(model, prompt, 40)] for prompt in PROMPTS])
    with torch.no_grad():
        output = model(texts, output_hidden_states=True)
        embeds = model.get_input_embeddings()(texts[:, 1:-1]).float()
    features = torch.cat([output.hidden_states[one] for one in config.feature_layers], -1).float()[:, :-2]
    where = torch.arange(features.shape[1]).expand(len(texts), -1)
    head = model.lm_head.weight.detach().float()
    adam = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(150):
        _, states = network(embeds, network.fuse(features), where, causal)
        own = network.logits(states)
        logits = states @ head.T if own is None else own
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), texts[:, 2:].flatten())
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    spelled, _ = (eagle if method == "eagle" else eagle3)(target.info)
    tensors = {name: one.detach() for name, one in network.state_dict().items()}
    return write(folder / method, spelled, tensors)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fitted")


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.02, "seed": 3}])
@pytest.mark.parametrize("method", METHODS)
def test_heads_that_were_taught_are_right_and_others_are_not(
    method: str, settings: dict[str, Any], folder: Path
) -> None:
    target = served()
    taught, raw = fitted(method, folder), random_eagle(target.info, method)
    accepted = {}
    for heads in (taught, raw):
        accepted[heads] = 0
        for prompt in PROMPTS[:3]:
            options: dict[str, Any] = {"max_new_tokens": 30, **settings}
            result = outrider.generate(target, prompt, method, {"heads": heads}, adaptive=False, **options)
            assert result.token_ids == outrider.generate(target, prompt, "none", **options).token_ids
            accepted[heads] += result.stats.num_accepted_draft_tokens
    assert accepted[taught] > 30
    assert accepted[taught] > 2 * accepted[raw]


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("method", METHODS)
def test_drawn_drafts_declare_their_laws(method: str, rule: str, folder: Path) -> None:
    options = {"heads": fitted(method, folder), "branching": 2, "depth": 3}
    runs = [
        outrider.generate(
            served(),
            PROMPTS[0],
            method,
            options,
            adaptive=False,
            temperature=0.02,
            seed=2,
            rule=rule,
            max_new_tokens=40,
        )
        for _ in range(2)
    ]
    assert runs[0].token_ids == runs[1].token_ids
    assert runs[0].stats.num_accepted_draft_tokens > 12


class Watched:
    """A drafter whose trees are kept, with the text that each was proposed for."""

    def __init__(self, method: str, heads: str, **options: Any) -> None:
        seen: list[tuple[tuple[int, ...], DraftTree]] = []

        made: Any = METHODS[method]

        class Watching(made):  # type: ignore[misc]
            def propose(self, batch: DraftBatch) -> TreeBatch:
                trees: TreeBatch = super().propose(batch)
                seen.extend((tuple(view.ids), tree) for view, tree in zip(batch.rows, trees.unpack(), strict=True))
                return trees

        self.seen = seen
        self.drafter = Watching(served().info, EagleOptions(heads=heads, **options))


@pytest.mark.parametrize("shape", [(4, 1, 4), (3, 3, 9), (5, 4, 24)])
@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_trees_are_those_of_a_plain_formula(method: str, shape: tuple[int, int, int], folder: Path) -> None:
    """Without a cache or a mask: every path is run alone, on the target's states of the whole text and its own after them."""
    target, heads = served(), fitted(method, folder)
    depth, branching, nodes = shape
    watched = Watched(method, heads, depth=depth, branching=branching, nodes=nodes)
    outrider.generate(target, PROMPTS[0], watched.drafter, adaptive=False, max_new_tokens=16)
    config, network = read_eagle(heads, target.info)
    model: Any = target.model

    def after(ids: tuple[int, ...], path: tuple[int, ...]) -> torch.Tensor:
        states = model(torch.tensor([ids[:-1]]), output_hidden_states=True).hidden_states
        hidden = network.fuse(torch.cat([states[one] for one in config.feature_layers], -1))
        for count in range(len(path) + 1):
            embeds = model.get_input_embeddings()(torch.tensor([[*ids[1:], *path[:count]]]))
            fed, made = network(embeds, hidden, torch.arange(hidden.shape[1])[None], causal)
            hidden = torch.cat([hidden, fed[:, -1:]], 1)
        own = network.logits(made[:, -1])
        logits: torch.Tensor = (model.lm_head(made[:, -1]) if own is None else own)[0]
        return logits

    for ids, tree in watched.seen[:-3]:
        view = DraftView(0, TokenView(ids), depth, 64)
        wanted = expected_paths(view, Shape(depth, branching, branching, nodes), partial(after, ids))
        assert paths_of(tree) == wanted


@pytest.mark.parametrize("method", METHODS)
def test_after_any_acceptance_the_draft_is_a_fresh_drafter_s(method: str, folder: Path) -> None:
    """Case S3: own features are replaced by the target's; nothing of a rejected draft stays."""
    target, heads = served(), fitted(method, folder)
    running = Watched(method, heads)
    outrider.generate(target, PROMPTS[0], running.drafter, adaptive=False, max_new_tokens=40)
    assert len({len(tree) for _, tree in running.seen}) >= 1
    for ids, tree in running.seen[1:]:
        fresh = Watched(method, heads)
        outrider.generate(target, ids[:-1], fresh.drafter, adaptive=False, max_new_tokens=2 + tree.depth)
        found, again = fresh.seen[0]
        assert found == ids
        assert again.tokens == tree.tokens
        assert again.parents == tree.parents


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_batch_and_turns_of_a_session_draft_as_alone(method: str, folder: Path) -> None:
    target, heads = served(), fitted(method, folder)
    prompts = [PROMPTS[0], PROMPTS[1][:3], [*PROMPTS[2], *PROMPTS[3]]]
    together = Watched(method, heads)
    outrider.generate_batch(target, prompts, together.drafter, adaptive=False, max_new_tokens=24)
    alone = Watched(method, heads)
    for prompt in prompts:
        outrider.generate(target, prompt, alone.drafter, adaptive=False, max_new_tokens=24)
    known = dict(alone.seen)
    common = [(tree, known[ids]) for ids, tree in together.seen if ids in known]
    assert len(common) > 15
    assert all(one.tokens == other.tokens and one.parents == other.parents for one, other in common)
    talk = Watched(method, heads)
    with outrider.session(target, talk.drafter, adaptive=False, max_new_tokens=12) as turns:
        for prompt in prompts:
            before = [*turns.ids, *prompt]
            assert list(turns.generate(prompt).token_ids) == plain_loop(target.model, before, 12)
            turns.truncate(len(turns.ids) - 4)
    for ids, tree in talk.seen:
        fresh = Watched(method, heads)
        outrider.generate(target, ids[:-1], fresh.drafter, adaptive=False, max_new_tokens=2 + tree.depth)
        assert fresh.seen[0][1].tokens == tree.tokens


def test_a_reduced_vocabulary_is_drafted_in_the_target_s_ids(tmp_path: Path) -> None:
    """Case 19: d2t holds offsets."""
    target = served()
    config, tensors = eagle3(target.info, draft_vocab=8)
    kept = set((tensors["d2t"] + torch.arange(8)).tolist())
    watched = Watched("eagle3", write(tmp_path, config, tensors))
    result = outrider.generate(target, PROMPTS[0], watched.drafter, adaptive=False, max_new_tokens=20)
    assert list(result.token_ids) == plain_loop(target.model, PROMPTS[0], 20)
    proposed = {token for _, tree in watched.seen for token in tree.tokens}
    assert proposed <= kept
    assert len(proposed) > 3


def test_a_tree_of_a_file_is_for_match(tmp_path: Path) -> None:
    (tmp_path / "tree.txt").write_text("0\n1\n0 0\n")
    target = served()
    heads = random_eagle(target.info, "eagle3")
    options: dict[str, Any] = {"heads": heads, "tree": str(tmp_path / "tree.txt")}
    result = outrider.generate(target, PROMPTS[0], "eagle3", options, adaptive=False, max_new_tokens=8)
    assert result.stats.num_draft_tokens >= 3
    with pytest.raises(outrider.DrafterError, match=r"tree .*tree.txt can't be drawn under rejection: leave it out"):
        outrider.generate(target, PROMPTS[0], "eagle3", options, rule="rejection", temperature=1, max_new_tokens=8)


@pytest.mark.parametrize("method", METHODS)
def test_every_pair_is_read_once(method: str) -> None:
    target = served()
    drafter = METHODS[method](target.info, EagleOptions(heads=random_eagle(target.info, method), depth=3, branching=2))
    fed: list[int] = []
    network: Any = drafter._layer._network
    handle = network.register_forward_pre_hook(lambda module, args: fed.append(args[0].shape[1]))
    result = outrider.generate(target, prompt_of(50), drafter, adaptive=False, max_new_tokens=30)
    handle.remove()
    assert fed[0] == 50
    assert sum(fed) == 50 + sum(fed[1:])
    assert sum(fed[1:]) <= result.stats.num_tokens + 4 * result.stats.num_steps


def test_long_prompts_are_read_in_pieces() -> None:
    target = tiny_target(0, spread=0.15, max_position_embeddings=8192)
    drafter = Eagle3(target.info, EagleOptions(heads=random_eagle(target.info, "eagle3")))
    fed: list[int] = []
    network: Any = drafter._layer._network
    handle = network.register_forward_pre_hook(lambda module, args: fed.append(args[0].shape[1]))
    outrider.generate(target, prompt_of(5000), drafter, adaptive=False, max_new_tokens=4)
    handle.remove()
    assert fed[:3] == [2048, 2048, 904] or max(fed) <= 2048


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"needs what was trained for this very model, .*eagle3\[heads=FOLDER\]"),
        ({"heads": "./nowhere"}, "option heads: './nowhere': no such folder"),
        ({"heads": ["./nowhere"]}, "give a folder of heads"),
        ({"heads": ".", "depth": 0}, "depth"),
        ({"heads": ".", "nodes": 65}, "nodes"),
        ({"layers": 3}, r"option layers = 3: must be a list in brackets, such as \[1, 2\]"),
        ({"layers": [1, "2"]}, "option layers.1 = '2'"),
    ],
)
def test_what_can_t_serve_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(outrider.InputError, match=message):
        outrider.generate(served(), [1, 2], "eagle3", options)


@pytest.mark.parametrize("kind", [str, Path])
def test_layers_are_a_list_in_every_spelling(kind: Any, tmp_path: Path) -> None:
    """Of the checkpoint's own layers 0 and 1, or of others."""
    target = served()
    heads = random_eagle(target.info, "eagle3")
    (tmp_path / "file.toml").write_text(
        f'[drafter]\nname = "eagle3"\n[drafter.options]\nheads = "{heads}"\nlayers = [1, 2]\n'
    )
    config = load_config(tmp_path / "file.toml").drafter_choice
    assert config is not None
    for word, options in (
        ("eagle3", {"heads": kind(heads), "layers": [1, 2]}),
        ("eagle3", {"heads": kind(heads), "layers": (1, 2)}),
        (f"eagle3[heads={heads},layers=[1,2]]", {}),
        ("eagle3", read_options([f"heads={heads}", "layers=[1, 2]"])),
        (config.name, config.options),
    ):
        drafter = outrider.make_drafter(word, options, target.info)
        assert drafter.needs().hidden == {1, 2}
    assert outrider.make_drafter("eagle3", {"heads": heads}, target.info).needs().hidden == {0, 1}


@pytest.mark.parametrize("method", METHODS)
def test_a_text_that_outgrows_the_heads_goes_on_without_drafts_and_says_so_once(method: str, tmp_path: Path) -> None:
    target = served()
    config, tensors = {"eagle": eagle, "eagle3": eagle3}[method](target.info)
    heads = write(tmp_path, config | {"max_position_embeddings": 20}, tensors)
    with pytest.warns(UserWarning, match="max_position_embeddings in .*config.json is 20, so longer texts") as told:
        result = outrider.generate(target, PROMPTS[0], method, {"heads": heads}, adaptive=False, max_new_tokens=30)
    assert len(told) == 1
    assert list(result.token_ids) == plain_loop(target.model, PROMPTS[0], 30)
    assert result.stats.num_draft_tokens > 0


def test_a_dtype_of_its_own_is_kept() -> None:
    target = served()
    options = {"heads": random_eagle(target.info, "eagle3"), "dtype": "float32"}
    result = outrider.generate(target, PROMPTS[0], "eagle3", options, adaptive=False, max_new_tokens=12)
    assert list(result.token_ids) == plain_loop(target.model, PROMPTS[0], 12)
    with pytest.raises(outrider.InputError, match="dtype 'floaty' is none of float64"):
        outrider.generate(target, [1, 2], "eagle3", options | {"dtype": "floaty"})


def test_a_row_without_features_is_not_drafted() -> None:
    target = served()
    drafter = Eagle3(target.info, EagleOptions(heads=random_eagle(target.info, "eagle3")))
    ids = TokenView([1, 2, 3])
    drafter.begin([outrider.RowStart(7, ids, 0)])
    (tree,) = drafter.propose(DraftBatch((DraftView(7, ids, 5, 64),))).unpack()
    assert len(tree) == 0
