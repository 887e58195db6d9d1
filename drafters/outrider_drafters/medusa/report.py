"""What a folder of Medusa's heads holds, for `outrider heads inspect`."""

from pathlib import Path

from outrider import HeadsReport, InputError, TargetInfo
from outrider_drafters.medusa.checkpoint import Found


def inspect_medusa(folder: Path, target: TargetInfo | None) -> HeadsReport | None:
    """Report on a folder; None where it holds no Medusa heads.

    Raises:
        InputError: it holds some that are broken.
    """
    found = Found.of(folder)
    if found is None:
        return None
    found.check_names()
    hidden, vocab, draft = found.widths
    found.shape(hidden, vocab or draft or 0)
    found.token_map(vocab)
    made_for = found.config.values.get("base_model_name_or_path")
    misfit = None
    if target is not None:
        try:
            found.shape(target.hidden_size, target.vocab_size)
            found.token_map(target.vocab_size)
        except InputError as error:
            misfit = str(error)
    outputs = {0: "the target's own", 1: "one for all"}.get(found.outputs, "one a head")
    blocks = f"{found.layers} a head, with{'' if found.bias else 'out'} biases"
    return HeadsReport(
        drafter="medusa",
        layout=found.name,
        parts=f"{found.heads} head{'s' * (found.heads > 1)}",
        hidden_size=hidden,
        vocab_size=vocab,
        draft_vocab_size=draft,
        features=None if target is None else (target.num_layers,),
        trained_for=made_for if isinstance(made_for, str) else None,
        details={"blocks": blocks, "output": outputs},
        misfit=misfit,
        in_model=found.in_model,
    )
