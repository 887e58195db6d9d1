"""The keys of EAGLE heads' config files, beside those that are harmless in any: what is read, and what must have one value."""

from collections.abc import Mapping
from typing import Any, Final

from outrider_drafters.head_keys import words

# The decoder layers' own keys, in every layout.
LAYERS: Final = words(
    """hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim rms_norm_eps
    hidden_act vocab_size max_position_embeddings rope_theta rope_scaling rope_parameters model_type
    original_max_position_embeddings attention_bias qkv_bias mlp_bias sliding_window use_sliding_window layer_types
    max_window_layers bias eagle_fc_bias"""
)
EAGLE3: Final = words(
    """draft_vocab_size target_hidden_size norm_before_residual norm_before_fc fc_norm norm_output eagle_config
    eagle_aux_hidden_state_layer_ids"""
)
SPECULATORS: Final = words("speculators_model_type speculators_config transformer_layer_config fusion_bias layernorms")
VLLM: Final = words("model truncated_vocab_size")

# What some writers can switch, and no drafter here does.
FIXED: Final[Mapping[str, tuple[Any, ...]]] = {
    "layernorms": (False,),
    "add_para_norm": (False,),
    "skip_prenorm": (True,),
    "skip_output_norm": (True,),
    "partial_rotary_factor": (1, None),
    "use_aux_hidden_state": (True,),
    "use_input_layernorm_in_first_layer": (True,),
    "use_last_layernorm": (True,),
    "use_mtp_layernorm": (False,),
    "next_layer_regular": (True,),
    "parallel_draft_step": (1,),
    "logit_scale": (1,),
}
EAGLE_CONFIG: Final = frozenset(["eagle_aux_hidden_state_layer_ids"])
ROPE: Final = words(
    """type rope_type rope_theta factor original_max_position_embeddings attention_factor beta_fast beta_slow mscale
    mscale_all_dim truncate short_factor long_factor low_freq_factor high_freq_factor mrope_section
    mrope_interleaved finetuned"""
)
