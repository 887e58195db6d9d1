"""outrider: lossless speculative decoding for Hugging Face models, with drafters that are picked by name.

import outrider

target = outrider.load("smollm2")
result = outrider.generate(target, "Tell me a story.", drafter="ngram")
print(result.text, result.stats.mean_acceptance_length)
"""

from outrider.decode.row import Step
from outrider.decode.stats import Stats
from outrider.draft.batch import PADDING, TreeBatch
from outrider.draft.contract import (
    API,
    DraftBatch,
    Drafter,
    DrafterOptions,
    DraftView,
    Outcome,
    OutcomeBatch,
    RowDrafter,
    RowStart,
    TargetInfo,
    TokenView,
)
from outrider.draft.tree import ROOT, DraftTree
from outrider.errors import (
    ConfigError,
    DrafterError,
    FetchError,
    GenerationError,
    InputError,
    ModelError,
    OutriderError,
    PluginError,
    UnknownDrafterError,
)
from outrider.generation import Result, Stream, generate, stream
from outrider.plugins.hookspecs import hookimpl
from outrider.plugins.registry import DrafterRecord, registry
from outrider.target.load import load
from outrider.target.model import Target

__version__ = "0.1.0"


def drafters() -> list[DrafterRecord]:
    """Return every drafter that can be picked by name, with where it comes from."""
    return registry().drafters()


__all__ = (
    "API",
    "PADDING",
    "ROOT",
    "ConfigError",
    "DraftBatch",
    "DraftTree",
    "DraftView",
    "Drafter",
    "DrafterError",
    "DrafterOptions",
    "DrafterRecord",
    "FetchError",
    "GenerationError",
    "InputError",
    "ModelError",
    "Outcome",
    "OutcomeBatch",
    "OutriderError",
    "PluginError",
    "Result",
    "RowDrafter",
    "RowStart",
    "Stats",
    "Step",
    "Stream",
    "Target",
    "TargetInfo",
    "TokenView",
    "TreeBatch",
    "UnknownDrafterError",
    "drafters",
    "generate",
    "hookimpl",
    "load",
    "registry",
    "stream",
)
