"""Random interleavings of everything that may happen to a cache, which must hold what the untouched model makes of the ids.

The reference is one forward of the model itself on a cache of transformers, so that it shares no code with the tiers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any

import pytest
import torch
import transformers
from transformers.cache_utils import DynamicCache

import outrider
from outrider import DraftTree, Target, TreeBatch
from outrider.target.masked import MaskedTier
from outrider.target.paths import PathTier, ReplayTier
from outrider.target.tier import Opening, Tier
from support import FULL, VOCAB

SEQUENCES = 2_000 if FULL else 100
OPERATIONS = 9
LONGEST = 48
WINDOW = 6

SHAPE: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE |= {"num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 128}
TWO_KINDS = ["sliding_attention", "full_attention"]
LINEAR: dict[str, Any] = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
LINEAR |= {"linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "head_dim": 8}
LINEAR |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "mistral": lambda: transformers.MistralConfig(**SHAPE, sliding_window=WINDOW),
    "gemma3": lambda: transformers.Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=WINDOW, layer_types=TWO_KINDS),
    "bloom": lambda: transformers.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4),
    "lfm2": lambda: transformers.Lfm2Config(**SHAPE, layer_types=["conv", "full_attention"]),
    "qwen3_next": lambda: transformers.Qwen3NextConfig(**SHAPE, **LINEAR, shared_expert_intermediate_size=32),
}

# Model, tier, rows, and how exact it is: some models compute in float32 whatever their dtype.
KINDS: dict[str, tuple[str, type[Tier[Any]], int, float]] = {
    "llama": ("llama", MaskedTier, 1, 1e-10),
    "ragged llama": ("llama", MaskedTier, 3, 1e-10),
    "sliding mistral": ("mistral", MaskedTier, 1, 1e-10),
    "sliding gemma3": ("gemma3", MaskedTier, 1, 1e-10),
    "ragged gemma3": ("gemma3", MaskedTier, 3, 1e-10),
    "bloom on paths": ("bloom", PathTier, 2, 1e-6),
    "mistral on paths": ("mistral", PathTier, 2, 1e-10),
    "replayed lfm2": ("lfm2", ReplayTier, 2, 1e-10),
    "replayed qwen3_next": ("qwen3_next", ReplayTier, 1, 1e-6),
    "replayed mistral": ("mistral", ReplayTier, 2, 1e-10),
}


@cache
def _target(name: str, tier: type[Tier[Any]]) -> Target:
    config = CONFIGS[name]()
    config._experts_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    return Target(model, tier=tier)


class Interrupted(BaseException):
    pass


class Run:
    """A target's cache, and the ids that it should hold."""

    def __init__(self, kind: str, seed: int) -> None:
        name, tier, rows, self.tolerance = KINDS[kind]
        self.target, self.random, self.tier = _target(name, tier), Random(f"{kind} {seed}"), tier
        self.ids: list[list[int]] = [[] for _ in range(rows)]
        self.open()
        self.read()

    def open(self) -> None:
        self.cache = self.target.open(len(self.ids), Opening(self.random.randint(1, 40)))

    def some(self, least: int, most: int) -> list[int]:
        return [self.random.randrange(VOCAB) for _ in range(self.random.randint(least, most))]

    def tree(self, least: int = 0) -> DraftTree:
        """Any tree whose siblings differ."""
        parents = [self.random.randint(-1, node - 1) for node in range(self.random.randint(least, 7))]
        tokens = self.random.sample(range(VOCAB), len(parents))
        return DraftTree(tuple(tokens), tuple(parents))

    def read(self) -> None:
        new = [self.some(1, 14) for _ in self.ids]
        chunk = self.random.randint(1, 14)
        logits = self.target.prefill(self.cache, new, chunk=chunk)
        self.ids = [ids + more for ids, more in zip(self.ids, new, strict=True)]
        for row, ids in enumerate(self.ids):
            self.compare(logits[row], self.logits(ids))

    def forward(self, least: int = 0) -> tuple[list[int], list[DraftTree], torch.Tensor]:
        roots, trees = [self.random.randrange(VOCAB) for _ in self.ids], [self.tree(least) for _ in self.ids]
        return roots, trees, self.target.forward(self.cache, roots, TreeBatch.pack(trees)).logits

    def step(self) -> None:
        roots, trees, logits = self.forward()
        paths = [tree.path(self.random.randint(-1, len(tree) - 1)) for tree in trees]
        self.target.commit(self.cache, max(map(len, trees)), paths)
        for row, (root, tree, path) in enumerate(zip(roots, trees, paths, strict=True)):
            self.ids[row] = [*self.ids[row], root, *[tree.tokens[node] for node in path]]
            self.compare(logits[row, path[-1] + 1 if path else 0], self.logits(self.ids[row]))

    def abort(self) -> None:
        """A forward that is never committed; a replayed cache has no copy to go back to where nothing was drafted."""
        _, trees, _ = self.forward(least=1 if self.tier is ReplayTier else 0)
        self.target.tier.rollback(self.cache, max(map(len, trees)))

    def interrupt(self) -> None:
        """A forward that ends halfway through the layers; then what a session does."""
        with self._interrupting(), pytest.raises(Interrupted):
            self.forward() if self.random.random() < 0.6 else self.target.prefill(
                self.cache, [self.some(2, 9)], chunk=4
            )
        self.turn(len(self.ids[0]))

    def turn(self, length: int | None = None) -> None:
        """The text is cut anywhere, and goes on with other ids."""
        held = self.target.tier.lengths(self.cache)[0]
        length = self.random.randint(0, held) if length is None else length
        self.ids = [self.ids[0][:length]]
        if not self.target.tier.truncate(self.cache, length):
            self.open()
            if length:
                self.target.prefill(self.cache, self.ids, chunk=self.random.randint(1, 14))
        self.read()

    def select(self) -> None:
        kept = self.random.sample(range(len(self.ids)), self.random.randint(1, len(self.ids)))
        self.target.select(self.cache, kept)
        self.ids = [self.ids[row] for row in kept]

    def operate(self) -> str:
        names = ["step"] * 4 + ["abort"] + (["turn", "turn", "read", "interrupt"] if len(self.ids) == 1 else ["select"])
        name = self.random.choice(names) if max(map(len, self.ids)) < LONGEST else "abort"
        getattr(self, name)()
        return name

    def check(self) -> None:
        assert self.target.tier.lengths(self.cache) == [len(ids) for ids in self.ids]
        for row, ids in enumerate(self.ids):
            for found, expected in zip(self.held(row), self.reference(ids), strict=True):
                # A sliding layer may have dropped what no later token can see, which is all before its window.
                dropped = expected.shape[2] - found.shape[2] if self.drops() else 0
                assert dropped <= max(0, len(ids) - WINDOW)
                self.compare(found, expected[:, :, dropped:] if dropped else expected)

    def drops(self) -> bool:
        return isinstance(self.target.tier, MaskedTier) and bool(self.cache.windows)

    def compare(self, found: torch.Tensor, expected: torch.Tensor) -> None:
        assert found.shape == expected.shape
        assert float((found - expected).abs().max()) <= self.tolerance

    def held(self, row: int) -> Sequence[torch.Tensor]:
        if not isinstance(self.target.tier, MaskedTier):
            return _tensors(self.cache.rows[row].cache)
        where = self.cache.positions[row]
        assert where[where >= 0].tolist() == list(range(len(self.ids[row])))
        assert len(self.cache) == self.cache.layers.get_seq_length()
        assert not self.cache.solid or int(self.cache.positions.min()) >= 0
        assert self.cache.solid or len(self.ids) > 1
        parts = [part for layer in self.cache.contents() for part in layer]
        return [part[row : row + 1, :, where[len(where) - part.shape[2] :] >= 0] for part in parts]

    @torch.no_grad()
    def reference(self, ids: list[int]) -> Sequence[torch.Tensor]:
        cache: Any = DynamicCache(config=self.target.model.config if self.tier is ReplayTier else None)
        model: Any = self.target.model
        model(torch.tensor([ids]), use_cache=True, **{self.target.tier.caller.names.cache or "": cache})
        return _tensors(cache)

    @torch.no_grad()
    def logits(self, ids: list[int]) -> torch.Tensor:
        model: Any = self.target.model
        found: torch.Tensor = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        return found

    @contextmanager
    def _interrupting(self) -> Iterator[None]:
        model: Any = self.target.model
        layers = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList))
        place = self.random.choice([*layers, model.get_output_embeddings()])

        def interrupt(module: Any, inputs: Any) -> None:
            raise Interrupted

        handle = place.register_forward_pre_hook(interrupt)
        try:
            yield
        finally:
            handle.remove()


def _tensors(cache: Any) -> list[torch.Tensor]:
    """Keys, values and whatever states the layers have."""
    found = []
    for layer in cache.layers:
        parts = [getattr(layer, name, None) for name in ("keys", "values", "conv_states", "recurrent_states")]
        held = [list(part.values()) if isinstance(part, dict) else part for part in parts]
        flat = [one for part in held for one in (part if isinstance(part, list) else [part])]
        found += [one for one in flat if isinstance(one, torch.Tensor)]
    assert len(found) >= 2
    return found


@pytest.fixture(autouse=True)
def _holes_are_soon_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.target.cache._FEW_HOLES", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_holds_what_the_model_makes_of_the_ids(kind: str) -> None:
    for seed in range(-(-SEQUENCES // len(KINDS))):
        run, done = Run(kind, seed), list[str]()
        try:
            run.check()
            for _ in range(OPERATIONS):
                done.append(run.operate())
                run.check()
        except Exception as error:
            raise AssertionError(f"sequence {seed} failed after {done}") from error


def test_a_plain_step_can_t_be_taken_back_by_replay() -> None:
    target = _target("lfm2", ReplayTier)
    cache = target.open(1)
    target.prefill(cache, [list(range(12))])
    target.forward(cache, [7], TreeBatch.pack([DraftTree()]))
    with pytest.raises(outrider.ModelError, match="in the tier replay a step without a draft can't be taken back"):
        target.tier.rollback(cache, 0)


def test_the_test_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that keeps the first nodes in place of the accepted ones."""
    commit = MaskedTier.commit

    def wrong(tier: MaskedTier, cache: Any, width: int, paths: Sequence[Sequence[int]]) -> None:
        commit(tier, cache, width, [tuple(range(len(path))) for path in paths])

    monkeypatch.setattr(MaskedTier, "commit", wrong)
    with pytest.raises(AssertionError, match="sequence"):
        test_the_cache_holds_what_the_model_makes_of_the_ids("llama")
