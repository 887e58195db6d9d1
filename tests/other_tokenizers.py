"""Tiny tokenizers of different kinds, and tiny models that have learnt the same few sentences with them."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from support import tiny_model

SENTENCES = (
    "The outrider rides ahead of the main body and reports back what it has seen on the road.",
    "Speculation is cheap where a small model guesses what the larger one is about to say.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; café, naïve, 漢字 and 🙂 too.",
)
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def _wrapped(tokenizer: Any, **special: Any) -> Any:
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


@lru_cache(maxsize=8)
def byte_level(size: int, eos: str = "<|end|>", bos: str | None = None) -> Any:
    """Byte-level BPE, as GPT-2's."""
    tokenizer: Any = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [eos, *([bos] if bos else [])]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=names, initial_alphabet=ALPHABET, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(f"{bos} $A", special_tokens=[(bos, 1)])
    return _wrapped(tokenizer, eos_token=eos, **({"bos_token": bos} if bos else {}))


@lru_cache(maxsize=8)
def pieces(size: int, *, prefix: bool = True) -> Any:
    """BPE over pieces that spell a space '▁', with bytes to fall back on and, with `prefix`, a space before every text."""
    tokenizer: Any = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    space = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space]) if prefix else space
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    names = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=size - 256, special_tokens=names, limit_alphabet=60, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    state = json.loads(tokenizer.to_str())["model"]
    words = [word for word, _ in sorted(state["vocab"].items(), key=lambda pair: pair[1])]
    names += [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = {word: at for at, word in enumerate([*names, *words[3:]])}
    merges = [tuple(pair) for pair in state["merges"]]
    tokenizer.model = models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return _wrapped(tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@lru_cache(maxsize=2)
def lower_cased(size: int = 300) -> Any:
    """WordPiece that loses case, accents and the kind of space, as BERT's."""
    tokenizer: Any = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    tokenizer.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=size, special_tokens=names, show_progress=False)
    )
    return _wrapped(tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")


@lru_cache(maxsize=2)
def one_word_a_token() -> Any:
    """Words between spaces, each a token, without a decoder."""
    words = {word: at for at, word in enumerate(["?", *sorted({w for text in SENTENCES for w in text.split()})])}
    tokenizer: Any = tokenizers.Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrapped(tokenizer, unk_token="?")


@lru_cache(maxsize=1)
def syllables() -> Any:
    """Tokens of three letters that no sentence has."""
    words = {first + vowel + last: 0 for first in "qxz" for vowel in "aeiouy" for last in "qxz"}
    model: Any = models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="qaq")
    tokenizer: Any = tokenizers.Tokenizer(model)
    tokenizer.decoder = decoders.Fuse()
    return _wrapped(tokenizer)


@lru_cache(maxsize=2)
def composing(size: int = 320) -> Any:
    """Byte-level BPE that composes characters first, as Qwen's."""
    tokenizer: Any = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    pattern = pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pattern, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    names = ["<|end|>", "<|im_start|>"]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=names, initial_alphabet=ALPHABET, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return _wrapped(tokenizer, eos_token="<|end|>", additional_special_tokens=["<|im_start|>"])


KINDS: dict[str, Callable[[], Any]] = {
    "bytes 300": lambda: byte_level(300),
    "bytes 400": lambda: byte_level(400, "</s>", "<s>"),
    "pieces with a space before": lambda: pieces(420),
    "pieces": lambda: pieces(380, prefix=False),
    "lower-cased": lower_cased,
    "words": one_word_a_token,
    "composing": composing,
}


@lru_cache(maxsize=8)
def learnt(kind: str, steps: int = 120) -> Any:
    """A tiny model that has learnt the sentences with a tokenizer; a short context of it gives them back."""
    tokenizer = KINDS[kind]()
    model = tiny_model(0, 0.1, torch.float32, vocab_size=len(tokenizer) + 5)
    texts = [tokenizer(text)["input_ids"] for text in SENTENCES]
    end = tokenizer.eos_token_id
    length = max(map(len, texts)) + 1
    rows = torch.full((len(texts), length), -100)
    for at, ids in enumerate(texts):
        rows[at, : len(ids) + 1] = torch.tensor([*ids, -100 if end is None else end])
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    with torch.enable_grad():
        for _ in range(steps):
            loss = model(rows.clamp(0), labels=rows).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.double().eval()
