"""Tiny random encoder-decoders; their texts begin with the decoder's own start."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

from matrix.architectures import VOCAB


def _made(model_class: Any, config: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = model_class(config).double().eval()
        for parameter in model.parameters():
            parameter.data.normal_(0.0, 0.3)
    model.generation_config = transformers.GenerationConfig(decoder_start_token_id=2, pad_token_id=0)
    return model


def _t5() -> Any:
    shape: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}
    return _made(transformers.T5ForConditionalGeneration, transformers.T5Config(**shape, eos_token_id=None))


def _bart_like(name: str) -> Any:
    shape: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 32, "max_position_embeddings": 128}
    shape |= dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
    shape |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    shape |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 64)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": None, "forced_eos_token_id": None}
    config = getattr(transformers, f"{name}Config")(**shape, **ids)
    return _made(getattr(transformers, f"{name}ForConditionalGeneration"), config)


ENCODER_DECODERS: dict[str, Callable[[], Any]] = {
    "t5 (encoder-decoder)": _t5,
    "bart (encoder-decoder)": lambda: _bart_like("Bart"),
    "mbart (encoder-decoder)": lambda: _bart_like("MBart"),
    "pegasus (encoder-decoder)": lambda: _bart_like("Pegasus"),
}
