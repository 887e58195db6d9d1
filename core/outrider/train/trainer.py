"""The training loop: batches in, heads out, at any time resumable bit for bit."""

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from outrider.draft.training import Losses, Trainee
from outrider.errors import InputError
from outrider.interrupts import deferred
from outrider.train import checkpoint
from outrider.train.batches import load_batch, plan
from outrider.train.examples import Example
from outrider.train.schedule import Schedule
from outrider.train.states import States

_BETAS: Final = (0.9, 0.95)
_LOG: Final = "training.jsonl"


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How a training goes; the same settings, text and machine give the same heads.

    Args:
        epochs: times that the text is gone through.
        rate: highest learning rate.
        batch_tokens: most tokens of a forward, padding included.
        accumulate: forwards of an update.
        clip: largest norm of an update's gradient.
        decay: of the weights, as in AdamW.
        seed: of the order, and of what the module draws.
        precision: `no`, `bf16` or `fp16`, of the forward.
    """

    epochs: int = 1
    rate: float = 1e-3
    batch_tokens: int = 2048
    accumulate: int = 2
    clip: float = 1.0
    decay: float = 0.01
    seed: int = 0
    precision: str = "no"


@dataclass(frozen=True, slots=True)
class Figures:
    """How a training goes.

    Args:
        step: updates that are done.
        steps: of the whole training.
        loss: by depth of the draft, the mean of what was learnt since the last report.
        right: by depth, how often the target's likeliest token was the trainee's.
        rate: the learning rate.
        seconds: of training so far, all runs together.
    """

    step: int
    steps: int
    loss: tuple[float, ...]
    right: tuple[float, ...]
    rate: float
    seconds: float


def accelerator(settings: TrainSettings) -> Any:
    """Return accelerate's `Accelerator`, which knows the other processes of `accelerate launch`.

    Raises:
        InputError: accelerate is not installed, or the precision is none.
    """
    try:
        from accelerate import Accelerator  # type: ignore[import-untyped]
        from accelerate.state import AcceleratorState  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError("training needs accelerate: pip install 'outrider[train]'") from error
    AcceleratorState._reset_state()  # an earlier training of this process may have had another precision
    try:
        return Accelerator(mixed_precision=settings.precision, gradient_accumulation_steps=settings.accumulate)
    except ValueError as error:
        raise InputError(f"precision '{settings.precision}': {str(error).splitlines()[0]}") from error


class Trainer:
    """Trains a module on examples.

    Args:
        trainee: what is trained.
        examples: to learn from.
        states: of the target on them.
        settings: of the training.
        folder: where heads, `training.pt` and the log `training.jsonl` are kept.
        run: accelerate's, from `accelerator`.

    Raises:
        InputError: there is less text than one update takes.
    """

    def __init__(
        self,
        trainee: Trainee,
        examples: Sequence[Example],
        states: States,
        settings: TrainSettings,
        folder: Path,
        run: Any,
    ) -> None:
        self.trainee, self.settings, self.folder = trainee, settings, folder
        self._examples, self._states, self._run = examples, states, run
        learnt = [part for part in trainee.parameters() if part.requires_grad]
        optimizer = torch.optim.AdamW(learnt, lr=settings.rate, betas=_BETAS, weight_decay=settings.decay)
        self._module, self._optimizer = run.prepare(trainee.to(run.device), optimizer)
        self._per_step = settings.accumulate * run.num_processes
        self._planned = (0, self._plan(0))
        # Epochs are packed differently, and every one has as many updates as the shortest.
        fewest = min(len(self._plan(epoch)) for epoch in range(settings.epochs))
        self.steps_per_epoch = fewest // self._per_step
        if not self.steps_per_epoch:
            raise InputError(
                f"the text makes {fewest} batches of {settings.batch_tokens} tokens, and an update takes {self._per_step}: "
                f"give more text, or lower batch_tokens or accumulate"
            )
        self.schedule = Schedule(settings.rate, settings.epochs * self.steps_per_epoch)
        self.step, self.seconds = 0, 0.0
        self._sums: torch.Tensor | None = None
        self._warned = False

    def resume(self) -> bool:
        """Go on where a training in the folder was broken off; false where there is none.

        Raises:
            InputError: it had other settings, or can't be read.
        """
        state = checkpoint.load(self.folder, self._identity())
        if state is None:
            return False
        self.trainee.load_state_dict(state["module"])
        self._optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["noise"])
        self.step, self.seconds = state["step"], state["seconds"]
        return True

    def train(
        self,
        *,
        every: int,
        report: Callable[[Figures], None],
        evaluate: Callable[[], dict[str, Any]] = dict,
        save_every: float = 300.0,
        evaluate_every: int = 0,
    ) -> None:
        """Train to the end; Ctrl-C waits for the update that is being made, and saves it.

        Args:
            every: updates between reports.
            report: gets the figures.
            evaluate: measures the heads in the folder; what it returns goes into the log.
            save_every: seconds between checkpoints.
            evaluate_every: updates between evaluations; none where 0.

        Raises:
            InputError: something can't be written.
        """
        if self.step == 0:
            torch.manual_seed(self.settings.seed)
        begun, saved = time.monotonic() - self.seconds, time.monotonic()
        while self.step < self.schedule.steps:
            with deferred() as interrupts:
                self._update()
                self.seconds = time.monotonic() - begun
                last = self.step == self.schedule.steps
                if self.step % every == 0 or last:
                    figures = self._figures()
                    report(figures)
                    self._log(asdict(figures))
                due = bool(evaluate_every) and self.step % evaluate_every == 0
                if last or due or interrupts.came or time.monotonic() - saved >= save_every:
                    self.save()
                    saved = time.monotonic()
            interrupts.check()
            if (due or last) and self._run.is_main_process:
                if measured := evaluate():
                    self._log({"step": self.step} | measured)
                begun = time.monotonic() - self.seconds  # the time of measuring is none of training

    def save(self) -> None:
        """Write the heads, and where the training stands.

        Raises:
            InputError: they can't be written.
        """
        if not self._run.is_main_process:  # all processes hold the same
            return
        try:
            self.trainee.save(self.folder)
        except OSError as error:
            raise InputError(f"{self.folder} can't be written: {error.strerror or error}") from error
        state = {
            "settings": self._identity(),
            "module": self.trainee.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "noise": torch.get_rng_state(),
            "step": self.step,
            "seconds": self.seconds,
        }
        checkpoint.save(self.folder, state)

    def _plan(self, epoch: int) -> list[list[int]]:
        return plan(self._examples, self.settings.batch_tokens, self.settings.seed, epoch)

    def _identity(self) -> dict[str, Any]:
        return asdict(self.settings) | {"examples": len(self._examples), "processes": self._run.num_processes}

    def _update(self) -> None:
        epoch, at = divmod(self.step, self.steps_per_epoch)
        batches = self._batches_of(epoch)[at * self._per_step : (at + 1) * self._per_step]
        for group in self._optimizer.param_groups:
            group["lr"] = self.schedule.rate(self.step)
        for chosen in batches[self._run.process_index :: self._run.num_processes]:
            batch = load_batch(self._examples, self._states, chosen, self._run.device)
            with self._run.accumulate(self._module):
                losses: Losses = self._module(batch)
                self._count(losses)
                self._run.backward(losses.total)
                if self._run.sync_gradients:
                    self._run.clip_grad_norm_(self._module.parameters(), self.settings.clip)
                self._optimizer.step()
                self._optimizer.zero_grad()
        self.step += 1

    def _batches_of(self, epoch: int) -> list[list[int]]:
        if self._planned[0] != epoch:
            self._planned = (epoch, self._plan(epoch))
        return self._planned[1]

    def _count(self, losses: Losses) -> None:
        if not self._warned and not bool(losses.count.any()):
            self._warned = True
            warnings.warn("a batch held nothing to learn, so its loss is zero", stacklevel=2)
        told = torch.stack([losses.loss.double(), losses.right.double(), losses.count.double()]).detach()
        self._sums = told if self._sums is None else self._sums + told

    def _figures(self) -> Figures:
        told, self._sums = self._run.reduce(self._sums), None
        losses, hits, count = told
        count = count.clamp(min=1)
        loss, right = (losses / count).tolist(), (hits / count).tolist()
        rate = self.schedule.rate(max(0, self.step - 1))
        return Figures(self.step, self.schedule.steps, tuple(loss), tuple(right), rate, self.seconds)

    def _log(self, values: dict[str, Any]) -> None:
        if self._run.is_main_process:
            with (self.folder / _LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(values) + "\n")
