"""A whole training: text, states, module, loop and measuring, put together."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError

from outrider.draft.training import Trains, TrainStart
from outrider.errors import InputError
from outrider.plugins.registry import registry
from outrider.target.fingerprint import Fingerprint
from outrider.target.model import Target
from outrider.train.chats import Chat, read_chats
from outrider.train.evaluation import measure
from outrider.train.examples import Example, count_tokens, encode_chats
from outrider.train.states import OnlineStates, States, StoredStates, store_states
from outrider.train.trainer import Figures, Trainer, TrainSettings, accelerator
from outrider.validation import explain

_EVERY: Final = 40
"""One chat of so many is held out, as its own text decides."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is trained, on what, and where it goes.

    Args:
        drafter: name of a drafter that can be trained.
        model: how the target is called.
        data: JSONL files of chats.
        out: folder of the heads.
        options: of the drafter's training.
        settings: of the loop.
        longest: tokens of a chat that are read.
        share: how much of the text is used.
        states: folder of the target's states; None computes them as they are needed.
        heads: earlier heads to go on from.
        report_every: updates between reports.
        evaluate_every: updates between measurements; only at the end where 0.
        save_every: seconds between checkpoints.
        prompts: held-out prompts that are measured; none where 0.
    """

    drafter: str
    model: str
    data: tuple[Path, ...]
    out: Path
    options: dict[str, Any] = field(default_factory=dict)
    settings: TrainSettings = field(default_factory=TrainSettings)
    longest: int = 1024
    share: float = 1.0
    states: Path | None = None
    heads: Path | None = None
    report_every: int = 5
    evaluate_every: int = 0
    save_every: float = 300.0
    prompts: int = 8


def trainable(name: str) -> Any:
    """Return the class of a drafter that can be trained.

    Raises:
        InputError: it can't; with those that can.
    """
    found = registry().find(name).drafter
    if not isinstance(found, Trains):
        known = [one.name for one in registry().drafters() if isinstance(one.drafter, Trains)]
        raise InputError(f"drafter '{name}' has nothing to train; these have: {', '.join(known)}")
    return found


def read_train_options(drafter: Any, given: dict[str, Any]) -> Any:
    """Validate the options of a drafter's training.

    Raises:
        InputError: one is unknown or wrong.
    """
    try:
        return drafter.TrainOptions.model_validate(given)
    except ValidationError as error:
        raise InputError(f"training '{drafter.name}': {explain(error, drafter.TrainOptions, 'option')}") from error


def train(target: Target, job: Job, say: Callable[[str], None], report: Callable[[Figures], None]) -> dict[str, Any]:
    """Train heads, or go on with a training that was broken off.

    Args:
        target: what they are for.
        job: what is trained.
        say: gets a line at every stage.
        report: gets the figures while it goes.

    Returns:
        The last measurement: `mean_acceptance_length`, `by_depth`, `steps`; empty where nothing is measured.

    Raises:
        InputError: bad data, options or settings, or something can't be written.
    """
    drafter = trainable(job.drafter)
    options = read_train_options(drafter, job.options)
    chats, held = _read(job)
    examples = encode_chats(target.tokenizer, chats, job.longest)
    counts = count_tokens(examples, target.info.vocab_size)
    say(f"{len(examples)} chats, {sum(len(one.ids) for one in examples)} tokens, {int(counts.sum())} of them learnt")
    run = accelerator(job.settings)
    torch.manual_seed(job.settings.seed)
    trainee = drafter.trainee(TrainStart(target.info, job.model, counts, job.heads), options)
    say(f"{sum(one.numel() for one in trainee.parameters() if one.requires_grad):,} weights to train")
    try:
        job.out.mkdir(parents=True, exist_ok=True)
        if (known := Fingerprint.of(target.info)) is not None:
            known.write(job.out, job.model)
    except OSError as error:
        raise InputError(f"{job.out} can't be written: {error.strerror or error}") from error
    states = _states(target, job, examples, trainee.layers, run, say)
    trainer = Trainer(trainee, examples, states, job.settings, job.out, run)
    if trainer.resume():
        say(f"going on after step {trainer.step} of {trainer.schedule.steps}")
    found: dict[str, Any] = {}

    def evaluate() -> dict[str, Any]:
        if held:
            folder = {drafter.trained_as: str(job.out)}
            found.update(asdict(measure(target, job.drafter, folder, held, 64)))
            say(_told(found))
        return dict(found)

    trainer.train(
        every=job.report_every,
        report=report,
        evaluate=evaluate,
        save_every=job.save_every,
        evaluate_every=job.evaluate_every,
    )
    return found


def _read(job: Job) -> tuple[list[Chat], list[list[dict[str, str]]]]:
    """Return the chats to learn from, and held-out prompts."""
    chats = [chat for path in job.data for chat in read_chats(path) if chat.answered]
    if not chats:
        raise InputError(f"{', '.join(map(str, job.data))}: no chat with an assistant's answer")
    chats = chats[: max(2, round(len(chats) * job.share))]
    if not job.prompts:
        return chats, []
    # The chat itself decides, so that text may be added anywhere and the same chats stay held out.
    drawn = [_digest(chat) for chat in chats]
    out = {one for one in drawn if one % _EVERY == 0} or {min(drawn)}
    learnt = [chat for chat, one in zip(chats, drawn, strict=True) if one not in out]
    if not learnt:
        return chats, []
    asked = [_question(chat) for chat, one in zip(chats, drawn, strict=True) if one in out]
    return learnt, [one for one in asked if one][: job.prompts]


def _digest(chat: Chat) -> int:
    text = json.dumps(chat.to_json(), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _question(chat: Chat) -> list[dict[str, str]]:
    """Return a chat up to its first answer."""
    first = next(at for at, message in enumerate(chat.messages) if message["role"] == "assistant")
    return [dict(message) for message in chat.messages[:first]]


def _states(
    target: Target, job: Job, examples: Sequence[Example], layers: Sequence[int], run: Any, say: Callable[[str], None]
) -> States:
    if job.states is None:
        return OnlineStates(target, layers)
    say(f"the target's states in {job.states}")
    share = (run.process_index, run.num_processes)
    store_states(
        target,
        examples,
        layers,
        job.states,
        tokens=job.settings.batch_tokens,
        share=share,
        report=lambda done, total: say(f"states {done} of {total}") if done % 4 == 0 or done == total else None,
    )
    run.wait_for_everyone()
    like = torch.zeros(0, device=run.device)
    return StoredStates(job.states, layers, examples, like)


def _told(found: dict[str, Any]) -> str:
    depths = " ".join(f"{share:.2f}" for share in found["by_depth"])
    return f"accepted on held-out text: {found['mean_acceptance_length']:.2f} tokens a step, by depth {depths}"
