"""outrider: lossless speculative decoding for Hugging Face models, with drafters that are picked by name.

    import outrider

    target = outrider.load("smollm2")
    result = outrider.generate(target, "Tell me a story.", drafter="ngram")
    print(result.text, result.stats.mean_acceptance_length)

The names are those of `outrider.api`, imported when the first is used: torch and transformers take seconds, in which the
command line must already answer Ctrl-C.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.api import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    api = None if name.startswith("__") else import_module("outrider.api")
    if api is None or name not in api.__all__:
        raise AttributeError(f"module 'outrider' has no attribute '{name}'")
    return getattr(api, name)


def __dir__() -> list[str]:
    return [*import_module("outrider.api").__all__, "__version__"]
