"""A tiny chat model: of two layers that say a few things over and over, with a template of its own."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

import outrider
from outrider import Target
from support import tiny_model

WORDS = [f"w{index}" for index in range(58)]
SPECIAL = ["<s>", "<user>", "<bot>", "<end>", "<pad>", "<unk>"]
TEMPLATE = (
    "<s>{% for m in messages %}{{ '<user>' if m['role'] == 'user' else '<bot>' if m['role'] == 'assistant' else '<s>' }}"
    "{{ ' ' + m['content'] + ' ' }}<end>{% endfor %}{% if add_generation_prompt %}<bot> {% endif %}"
)


@lru_cache(maxsize=1)
def tokenizer() -> Any:
    vocab = {word: index for index, word in enumerate([*SPECIAL, *WORDS])}
    model: Any = tokenizers.models.WordLevel(vocab, unk_token="<unk>")
    inner: Any = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(SPECIAL)
    found: Any = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="<end>", pad_token="<pad>", unk_token="<unk>"
    )
    found.add_special_tokens({"additional_special_tokens": ["<user>", "<bot>"]})
    found.chat_template = TEMPLATE
    return found


@lru_cache(maxsize=1)
def target() -> Target:
    """A float32 target whose layers say little beside the last token: what a head can learn in a minute."""
    model = tiny_model(dtype=torch.float32, eos_token_id=3)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.04)
            layer.mlp.down_proj.weight.mul_(0.04)
        model.lm_head.weight[[0, 1, 2, 4, 5]] = 0  # of all that is no text it only says the end
    return outrider.load(model, tokenizer=tokenizer())


def chats(count: int, answer: int = 24, seed: int = 0) -> list[dict[str, Any]]:
    """Chats in which the target answers greedily."""
    luck = torch.Generator().manual_seed(seed)
    asked = [" ".join(WORDS[int(one)] for one in torch.randint(0, 58, (4,), generator=luck)) for _ in range(count)]
    who = target()
    prompts = [[{"role": "user", "content": one}] for one in asked]
    texts = outrider.generate_batch(who, prompts, "none", max_new_tokens=answer, temperature=0)
    return [
        {"messages": [*prompt, {"role": "assistant", "content": text.text}], "finished": text.finish_reason != "length"}
        for prompt, text in zip(prompts, texts, strict=True)
        if text.text.strip()
    ]


def write_chats(path: Path, count: int, seed: int = 0) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in chats(count, seed=seed)))
    return path
