"""Load what `eagle3_export.py` wrote with the classes of the package `speculators`, and compare logits with the originals'.

    PYTHONPATH=tests python -m oracle.eagle3_exported FOLDER

Its loader passes over some tensors that are missing, so the names are compared too: with those that the model itself has.
"""

import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from loguru import logger  # type: ignore[import-not-found]
from speculators import SpeculatorModel, SpeculatorModelConfig  # type: ignore[import-not-found]
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # type: ignore[import-not-found]
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from oracle.eagle3_cases import CASES, TENSORS
from oracle.eagle3_reference import in_float64, logits_of

TRAINING = {"verifier_lm_head.weight", "verifier_norm.weight"}  # never saved
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "draft_vocab_size")
LIMIT = 1e-12


def report_of(folder: Path) -> dict[str, Any]:
    """What the loader says of names; the class's own method, which wants the model alone, is gone round."""
    load: Any = SpeculatorModel.from_pretrained.__func__
    told: dict[str, Any] = load(Eagle3DraftModel, folder, output_loading_info=True)[1]
    return told


def faults_of(folder: Path) -> list[str]:
    """What is wrong with an exported head."""
    name, _, way = folder.name.partition("--")
    case = CASES[name]["config"]
    config = SpeculatorModelConfig.from_pretrained(folder)
    if not isinstance(config, Eagle3SpeculatorConfig):
        return [f"its config is read as a {type(config).__name__}"]
    faults = [f"{key} is {getattr(config, key)}" for key in FLAGS if getattr(config, key) != case[key]]
    verifier = config.speculators_config.verifier
    if (Path(verifier.name_or_path).name, verifier.architectures) != ("target", ["LlamaForCausalLM"]):
        faults.append(f"its verifier is {verifier}")
    config.transformer_layer_config._attn_implementation = "sdpa"
    model: Any = Eagle3DraftModel.from_pretrained(folder, config=config)
    told = report_of(folder)
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    lacking = {"embed_tokens.weight"} if way == "bare" else set()
    held = {key: one for key, one in model.state_dict().items() if key not in TRAINING}
    if stored.keys() != held.keys() - lacking:
        faults.append(f"names that one of both lacks: {sorted(stored.keys() ^ (held.keys() - lacking))}")
    if told["unexpected_keys"] or told["mismatched_keys"] or set(told["missing_keys"]) - TRAINING - lacking:
        faults.append(f"its loader says {told}")
    both = stored.keys() & held.keys()
    faults += [f"{key} is another tensor" for key in sorted(both) if not torch.equal(held[key], stored[key])]
    if list(model.config.eagle_aux_hidden_state_layer_ids) != case["eagle_aux_hidden_state_layer_ids"]:
        faults.append(f"it reads the layers {model.config.eagle_aux_hidden_state_layer_ids}")
    found = logits_of(model, TENSORS[f"features.{CASES[name]['features']}"], TENSORS["ids"])
    error = float((found - TENSORS[f"logits.{name}"]).abs().max())
    return faults if error <= LIMIT else [*faults, f"its logits differ by {error:.1e}"]


def main(folder: Path) -> int:
    in_float64()
    disable_progress_bar()
    set_verbosity_error()
    logger.remove()
    exported = sorted((folder / "exports").iterdir())
    wrong = {}
    for one in exported:
        try:
            faults = faults_of(one)
        except Exception as error:  # whatever the loader raises
            faults = [f"it can't be loaded: {error!r:.200}"]
        if faults:
            wrong[one.name] = faults
    for name, faults in wrong.items():
        print(f"{name}: {'; '.join(faults)}")
    print(f"{len(exported)} exported folders loaded by speculators, {len(wrong)} of them wrong")
    return int(bool(wrong) or not exported)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
