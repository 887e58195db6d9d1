"""Config files of trained heads, read key by key.

A key that nobody here knows may change what a head computes, so it is an error.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider import InputError


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# How a model is trained, saved or sampled from; nothing of it reaches the forward of a head.
HARMLESS: Final = words(
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

    def check(self, *known: Iterable[str], fixed: Mapping[str, tuple[Any, ...]] | None = None) -> None:
        """Refuse keys that are neither known nor harmless, and values that nobody here computes.

        Args:
            known: keys that are read.
            fixed: values, of which the first is told, that keys may have without being read.

        Raises:
            InputError: with the keys.
        """
        fixed = fixed or {}
        names = HARMLESS.union(fixed, *known)
        unknown = [f"{self.where}{name}" for name in self.values if name not in names]
        if unknown:
            raise InputError(
                f"{self.path}: unknown key{'s' * (len(unknown) > 1)} {', '.join(unknown)}, which may change what the head "
                f"computes; delete what is only its trainer's"
            )
        for name, allowed in fixed.items():
            if name in self.values and self.values[name] not in allowed:
                raise self.wrong(name, f"{str(allowed[0]).lower()}; nothing else is supported")

    def wrong(self, name: str, must: str) -> InputError:
        """Return the error that a key's value is not what it must be."""
        return InputError(f"{self.path}: {self.where}{name} is {self.values.get(name)!r}, and must be {must}")
