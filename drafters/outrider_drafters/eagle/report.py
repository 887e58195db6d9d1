"""What a folder of an EAGLE head holds, for `outrider heads inspect`."""

from pathlib import Path

from outrider import HeadsReport, InputError, TargetInfo
from outrider_drafters.eagle.checkpoint import check_source, draft_ids, read_vocabulary
from outrider_drafters.eagle.config import EagleConfig, Method
from outrider_drafters.eagle.source import CONFIG, WEIGHTS, open_source
from outrider_drafters.tensors import is_file, weight_file

_FLAGS = ("fc_bias", "attention_bias", "qk_norm", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def inspect_eagle(folder: Path, target: TargetInfo | None, method: Method) -> HeadsReport | None:
    """Report on a folder; None where it holds no head of this kind.

    Raises:
        InputError: it holds one that is broken.
    """
    if not is_file(folder / CONFIG) or weight_file(folder, WEIGHTS) is None:
        return None
    source = open_source(folder)
    if not source.is_head or source.method != method:
        return None
    config = check_source(source)
    draft_ids(source, config, read_vocabulary(source))
    misfit = None
    if target is not None:
        try:
            config = config.for_target(target)
        except InputError as error:
            misfit = str(error)
    return HeadsReport(
        drafter=method,
        layout=config.layout,
        parts=f"{config.num_layers} layer{'s' * (config.num_layers > 1)}",
        hidden_size=config.target_hidden_size,
        vocab_size=config.vocab_size,
        draft_vocab_size=config.draft_vocab_size,
        features=config.feature_layers or None,
        trained_for=config.trained_for,
        details=_details(config),
        misfit=misfit,
    )


def _details(config: EagleConfig) -> dict[str, str]:
    flags = [name for name in _FLAGS if getattr(config, name)]
    rope = ", ".join(f"{key} {value}" for key, value in config.rope.items() if not isinstance(value, list))
    ids, window = config.layer_ids, config.sliding_window
    found = {
        "attention": f"{config.num_heads} heads of {config.head_dim}, {config.num_kv_heads} of keys and values",
        "rotary": rope,
        "longest context": f"{config.max_positions} tokens ({config.positions_key}); beyond it nothing is drafted",
        "embeddings": "its own" if config.own_embeddings else "the target's",
        "head": "its own" if config.own_head else "the target's",
    }
    if config.hidden_size != config.target_hidden_size:
        found["own width"] = str(config.hidden_size)
    if ids.ids is not None:
        found["layers as written"] = (
            f"{', '.join(map(str, ids.ids))}, counted by {'outputs' if ids.outputs else 'inputs'}"
        )
    if window is not None:
        found["sliding"] = f"{window} tokens, in layers {', '.join(map(str, sorted(config.sliding_layers)))}"
    return found | ({"variants": ", ".join(flags)} if flags else {})
