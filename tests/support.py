"""Tiny real models, an independent plain loop, and drafters that propose exactly what a test says."""

import inspect
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import tokenizers
import torch
import transformers

import outrider
from eagle_layouts import random_eagle
from medusa_layouts import random_heads
from outrider import DrafterOptions, DraftTree, DraftView, OutcomeBatch, RowDrafter, Target
from outrider.draft.contract import API
from outrider.target.tier import PLAIN, Opening

FULL = bool(os.environ.get("OUTRIDER_TEST_FULL"))
"""Whether what takes many minutes is run whole."""
VOCAB = 64
# What this transformers calls a cache.
CACHE = "cache" if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters else "past_key_values"


def tiny_model(seed: int = 0, spread: float = 0.3, dtype: torch.dtype = torch.float64, **config: Any) -> Any:
    """A random two-layer Llama. A spread of 0.3 gives varied text, 0.1 text that soon repeats itself."""
    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 512,
        "initializer_range": spread,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(shape | config)))
    return model.to(dtype).eval()


# In the names that every config understands.
SHAPE: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE |= {"num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 8, "tie_word_embeddings": False}
SHAPE |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def lively(kind: str, **config: Any) -> Any:
    """A random model whose weights give varied text."""
    known: Any = transformers.AutoConfig.for_model(kind, **(SHAPE | config))
    auto: Any = transformers.AutoModelForSeq2SeqLM if known.is_encoder_decoder else transformers.AutoModelForCausalLM
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model: Any = auto.from_config(known)
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3)
        model.get_output_embeddings().weight.normal_(0, 1)
    return model.double().eval()


@lru_cache(maxsize=64)
def tiny_target(seed: int = 0, spread: float = 0.3, **config: Any) -> Target:
    """A probed target on a tiny model, with a tokenizer of one character a token."""
    return outrider.load(tiny_model(seed, spread, **config), tokenizer=char_tokenizer())


CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ."


@lru_cache(maxsize=1)
def char_tokenizer() -> Any:
    vocab = {character: index for index, character in enumerate(CHARACTERS)}
    words: Any = tokenizers.models.WordLevel(vocab, unk_token=".")
    tokenizer: Any = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.no_grad()
def plain_loop(model: Any, ids: Sequence[int], count: int, eos: Sequence[int] = ()) -> list[int]:
    """Greedy decoding, one token a forward, without a cache: the reference that shares no code with outrider."""
    new: list[int] = []
    while len(new) < count and not (new and new[-1] in eos):
        new.append(int(model(torch.tensor([[*ids, *new]])).logits[0, -1].argmax()))
    return new


def transformers_generate(model: Any, ids: Sequence[int], **options: Any) -> list[int]:
    """`generate` of the untouched model, greedy unless told otherwise."""
    inputs = torch.tensor([list(ids)])
    output = model.generate(inputs, attention_mask=torch.ones_like(inputs), **({"do_sample": False} | options))
    new: list[int] = output[0, len(ids) :].tolist()
    return new


Script = Callable[[Sequence[int]], DraftTree]


class Scripted(RowDrafter[DrafterOptions]):
    """Proposes what a script makes of the committed ids, within the room that the row has."""

    name: ClassVar[str] = "scripted"
    requires_api: ClassVar[tuple[int, int]] = API

    def __init__(self, target: Target, script: Script) -> None:
        super().__init__(target.info, DrafterOptions())
        self.script = script
        self.outcomes: list[outrider.Outcome] = []
        self.ended: list[int] = []

    def propose_row(self, view: DraftView) -> DraftTree:
        return shallow(self.script(view.ids), view.max_depth, view.max_nodes)

    def observe(self, batch: OutcomeBatch) -> None:
        self.outcomes += batch.rows

    def end(self, rows: Sequence[int]) -> None:
        self.ended += rows


def shallow(tree: DraftTree, depth: int, nodes: int = 64) -> DraftTree:
    """Leave out the nodes below a depth, and the last beyond a number."""
    if tree.depth <= depth and len(tree) <= nodes:
        return tree
    kept = [node for node, found in enumerate(tree.depths()) if found <= depth][:nodes]
    place = {-1: -1} | {node: index for index, node in enumerate(kept)}
    return DraftTree(tuple(tree.tokens[n] for n in kept), tuple(place[tree.parents[n]] for n in kept))


def _next(text: Sequence[int], ids: Sequence[int], count: int) -> list[int]:
    return list(text[len(ids) : len(ids) + count])


def right_chain(text: Sequence[int], size: int = 5) -> Script:
    """The coming tokens of a known text."""
    return lambda ids: DraftTree.chain(_next(text, ids, size))


def wrong_chain(text: Sequence[int], size: int = 5) -> Script:
    """Never the coming token."""
    return lambda ids: DraftTree.chain([(token + 1) % VOCAB for token in _next(text, ids, size)])


def partly_right_chain(text: Sequence[int], size: int = 5) -> Script:
    """Right for a few tokens, then wrong; how many changes with the length."""

    def script(ids: Sequence[int]) -> DraftTree:
        coming = _next(text, ids, size)
        good = len(ids) % (size + 1)
        return DraftTree.chain([token if index < good else (token + 1) % VOCAB for index, token in enumerate(coming)])

    return script


def _branching(coming: list[int], good: int) -> DraftTree:
    """A wrong branch before the right one at every level, right for `good` levels."""
    tokens: list[int] = []
    parents: list[int] = []
    trunk = -1
    for level, token in enumerate(coming):
        trunk_token = token if level < good else (token + 2) % VOCAB
        tokens += [(token + 1) % VOCAB, trunk_token]
        parents += [trunk, trunk]
        tokens.append((token + 3) % VOCAB)  # a leaf under the wrong branch
        parents.append(len(tokens) - 3)
        trunk = len(tokens) - 2
    return DraftTree(tuple(tokens), tuple(parents))


def right_tree(text: Sequence[int], size: int = 4) -> Script:
    """The coming tokens as second siblings all the way down."""
    return lambda ids: _branching(_next(text, ids, size), size)


def wrong_tree(text: Sequence[int], size: int = 4) -> Script:
    """Branches, none of them right."""
    return lambda ids: _branching(_next(text, ids, size), 0)


def partly_right_tree(text: Sequence[int], size: int = 4) -> Script:
    """Branches that are right for a few levels."""
    return lambda ids: _branching(_next(text, ids, size), len(ids) % (size + 1))


SCRIPTS: dict[str, Callable[[Sequence[int]], Script]] = {
    "right chain": right_chain,
    "wrong chain": wrong_chain,
    "partly right chain": partly_right_chain,
    "right tree": right_tree,
    "wrong tree": wrong_tree,
    "partly right tree": partly_right_tree,
}


# Every drafter of the registry, so that a new one is tested by being registered, and the scripted ones.
NAMES = [*[record.name for record in outrider.drafters()], *SCRIPTS]


class Watched(Target):
    """A target that keeps the caches it opened, for a look inside."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.model, target.tokenizer)
        self.caches: list[Any] = []

    def open(self, rows: int, want: Opening = PLAIN) -> Any:
        self.caches.append(super().open(rows, want))
        return self.caches[-1]


# What drafters that can't do without options get, for a target.
OPTIONS: dict[str, Callable[[Target], dict[str, Any]]] = {
    "cascade": lambda target: {"drafters": ["ngram", "lookahead"]},
    "draft-model": lambda target: {"model": _reader(target)},
    "eagle": lambda target: {"heads": random_eagle(target.info, "eagle")},
    "eagle3": lambda target: {"heads": random_eagle(target.info, "eagle3")},
    "medusa": lambda target: {"heads": random_heads(target.info.hidden_size, target.info.vocab_size)},
}


def _reader(target: Target) -> Any:
    """The target's own model as a drafter, or another where it can't be one."""
    can = target.tier.name != "replay" and not target.model.config.is_encoder_decoder
    return target.model if can else tiny_model(0, dtype=target.model.dtype)


def word_of(name: str, target: Target) -> Any:
    """A registered drafter with the options that it needs."""
    return {"name": name, "options": OPTIONS[name](target)} if name in OPTIONS else name


# A state that can't be taken back is none that a drafter of the target's own layers could use.
REFUSES: dict[str, Callable[[Target], bool]] = {
    "self": lambda target: target.tier.name == "replay" or target.model.config.is_encoder_decoder,
    "eagle": lambda target: target.model.config.is_encoder_decoder,
    "eagle3": lambda target: target.model.config.is_encoder_decoder,
}


def registered(target: Target) -> dict[str, Any]:
    """All registered drafters by name, but for those that refuse the target by design."""
    names = [record.name for record in outrider.drafters()]
    return {name: word_of(name, target) for name in names if not (name in REFUSES and REFUSES[name](target))}


def every_drafter(target: Target, text: Sequence[int]) -> dict[str, Any]:
    """All registered drafters by name, and a scripted one that knows the text."""
    return registered(target) | {name: Scripted(target, script(text)) for name, script in SCRIPTS.items()}
