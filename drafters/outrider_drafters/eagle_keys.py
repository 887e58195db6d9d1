"""The keys of EAGLE heads' config files: what is read, what is harmless, and what must have one value.

A key that nobody here knows may change what a head computes, so it is an error.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider import InputError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The decoder layers' own keys, in every layout.
LAYERS: Final = _words(
    """hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim rms_norm_eps
    hidden_act vocab_size max_position_embeddings rope_theta rope_scaling rope_parameters model_type
    original_max_position_embeddings attention_bias qkv_bias mlp_bias sliding_window use_sliding_window layer_types
    max_window_layers bias eagle_fc_bias"""
)
EAGLE3: Final = _words(
    """draft_vocab_size target_hidden_size norm_before_residual norm_before_fc fc_norm norm_output eagle_config
    eagle_aux_hidden_state_layer_ids"""
)
SPECULATORS: Final = _words("speculators_model_type speculators_config transformer_layer_config fusion_bias layernorms")
VLLM: Final = _words("model truncated_vocab_size")

# How a model is trained, saved or sampled from; nothing of it reaches the forward of a head.
HARMLESS: Final = _words(
    """_name_or_path name_or_path architectures auto_map dtype torch_dtype transformers_version _attn_implementation
    attn_implementation bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id use_cache
    initializer_range pretraining_tp attention_dropout tie_word_embeddings tie_encoder_decoder return_dict
    output_hidden_states output_attentions torchscript use_bfloat16 pruned_heads is_encoder_decoder is_decoder
    add_cross_attention cross_attention_hidden_size tokenizer_class prefix problem_type finetuning_task
    task_specific_params id2label label2id max_length min_length do_sample early_stopping num_beams num_beam_groups
    diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate
    forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens chunk_size_feed_forward tf_legacy_loss method num_lookahead_tokens base_model_name_or_path
    speculators_version embed_requires_grad transformer_layer_architecture has_no_defaults_at_init"""
)

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
ROPE: Final = _words(
    """type rope_type rope_theta factor original_max_position_embeddings attention_factor beta_fast beta_slow mscale
    mscale_all_dim truncate short_factor long_factor low_freq_factor high_freq_factor mrope_section
    mrope_interleaved finetuned"""
)


@dataclass(frozen=True, slots=True)
class Keys:
    """A JSON object of a config file, read key by key with its type checked.

    Args:
        path: of the file.
        values: of the object.
        where: the object's place in the file, such as `transformer_layer_config.`.
    """

    path: Path
    values: Mapping[str, Any]
    where: str = ""

    def whole(self, name: str) -> int | None:
        """Return a number of at least one; None where the key is absent or null.

        Raises:
            InputError: it is something else.
        """
        found = self.values.get(name)
        if found is not None and (type(found) is not int or found < 1):
            raise self.wrong(name, "a whole number of at least 1")
        return found

    def flag(self, name: str) -> bool | None:
        """Return a truth value; None where the key is absent or null.

        Raises:
            InputError: it is something else.
        """
        found = self.values.get(name)
        if found is not None and type(found) is not bool:
            raise self.wrong(name, "true or false")
        return found

    def layers(self, name: str) -> tuple[int, ...] | None:
        """Return ids of layers; None where the key is absent, null or empty.

        Raises:
            InputError: it is something else.
        """
        found = self.values.get(name)
        if found is not None and not (isinstance(found, list) and all(type(one) is int for one in found)):
            raise self.wrong(name, "a list of whole numbers")
        return tuple(found) if found else None

    def inner(self, name: str) -> "Keys":
        """Return an object in this one; an empty one where the key is absent or null.

        Raises:
            InputError: it is something else.
        """
        found = self.values.get(name)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(name, "an object")
        return Keys(self.path, found or {}, f"{self.where}{name}.")

    def check(self, *known: Iterable[str]) -> None:
        """Refuse keys that are neither known nor harmless, and values that nobody here computes.

        Raises:
            InputError: with the keys.
        """
        names = HARMLESS.union(FIXED, *known)
        unknown = [f"{self.where}{name}" for name in self.values if name not in names]
        if unknown:
            raise InputError(
                f"{self.path}: unknown key{'s' * (len(unknown) > 1)} {', '.join(unknown)}, which may change what the head "
                f"computes"
            )
        for name, allowed in FIXED.items():
            if name in self.values and self.values[name] not in allowed:
                raise self.wrong(name, f"{str(allowed[0]).lower()}; nothing else is supported")

    def wrong(self, name: str, must: str) -> InputError:
        """Return the error that a key's value is not what it must be."""
        return InputError(f"{self.path}: {self.where}{name} is {self.values.get(name)!r}, and must be {must}")
