"""How Medusa's heads are named, in the layouts in which they are published, and what their config files say.

| layout | names |
|---|---|
| FasterDecoding, v0.1 `.pt` and safetensors | `{k}.{i}.linear.weight`, `.bias`, `{k}.{L}.weight` |
| "version 2" | the same without output layers: the target's own rows serve |
| Medusa-2, in the target's own files | the same behind `medusa_head.` |
| vLLM | `blocks.{k}.layers.{i}.weight`, `lm_heads.{k}.weight`, or one `lm_heads.0.weight` for all |

Any of them may hold a `token_map`, the target's ids of a smaller vocabulary.
"""

import re
from dataclasses import dataclass
from typing import Final

from outrider_drafters.head_keys import words

KEYS: Final = words(
    """medusa_num_heads medusa_num_layers version model_type hidden_size vocab_size num_heads num_hidden_layers medusa_fc_bias
    original_lm_head truncated_vocab_size rank_accuracies"""
)
# How they were trained, or how another engine shapes its trees.
UNUSED: Final = words(
    """medusa_heads_coefficient medusa_decay_coefficient medusa_lr_multiplier medusa_scheduler medusa_only_heads max_paths topk
    max_seq_len"""
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How tensors are named.

    Args:
        block: names of blocks: head, block, kind.
        output: names of output layers: the head first.
        names: writes a block's name.
        output_names: writes an output layer's name, of a head and the number of its blocks.
    """

    block: re.Pattern[str]
    output: re.Pattern[str]
    names: str
    output_names: str


FASTER: Final = Layout(
    re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)"),
    re.compile(r"(\d+)\.\d+\.weight"),
    "{head}.{layer}.linear.{kind}",
    "{head}.{layers}.weight",
)
VLLM: Final = Layout(
    re.compile(r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)"),
    re.compile(r"lm_heads\.(\d+)\.weight"),
    "blocks.{head}.layers.{layer}.{kind}",
    "lm_heads.{head}.weight",
)
