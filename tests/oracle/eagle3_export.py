"""Export every case for `eagle3_exported.py`, which loads the folders in the other implementation's environment.

    PYTHONPATH=tests python -m oracle.eagle3_export FOLDER

Each is written straight as speculators, and by way of the layouts `specforge` and `eagle` where these have words for it. One
is written without its embeddings, which are then the target's.
"""

import json
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from oracle.eagle3_cases import CASES, LAYERS, SIZE, VOCAB, write
from outrider import HeadsTarget, InputError, TargetInfo, export_heads


def target_in(folder: Path, embeddings: torch.Tensor) -> HeadsTarget:
    """As much of a target as the other implementation reads: its config, and the weights around its layers."""
    folder.mkdir(parents=True)
    ends = {
        "model.embed_tokens.weight": embeddings,
        "lm_head.weight": embeddings + 1,
        "model.norm.weight": torch.ones(SIZE),
    }
    safetensors.torch.save_file(ends, folder / "model.safetensors")
    body: dict[str, Any] = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": LAYERS}
    (folder / "config.json").write_text(
        json.dumps(body | {"hidden_size": SIZE, "vocab_size": VOCAB, "num_attention_heads": 4})
    )
    info = TargetInfo(VOCAB, SIZE, LAYERS, None, frozenset(), torch.float32, torch.device("meta"), None)
    return HeadsTarget(str(folder), info, ("LlamaForCausalLM",), lambda: info)


def main(folder: Path) -> int:
    bare, name = folder / "sources" / "bare", next(iter(CASES))
    tensors = write(name, bare)
    target = target_in(folder / "target", tensors.pop("embed_tokens.weight"))
    safetensors.torch.save_file(tensors, bare / "model.safetensors")
    export_heads(bare, "speculators", folder / "exports" / f"{name}--bare", target)
    count = dict.fromkeys(("speculators", "specforge", "eagle"), 0)
    for name in CASES:
        source = folder / "sources" / name
        write(name, source)
        export_heads(source, "speculators", folder / "exports" / f"{name}--speculators", target)
        count["speculators"] += 1
        for layout in ("specforge", "eagle"):
            between = folder / "between" / f"{name}--{layout}"
            try:
                export_heads(source, layout, between, target)
            except InputError:
                continue
            export_heads(between, "speculators", folder / "exports" / between.name, target)
            count[layout] += 1
    print("exported", ", ".join(f"{number} by {layout}" for layout, number in count.items()))
    return int(min(count.values()) == 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
