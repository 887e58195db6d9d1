"""The README's configs are valid, and its table has every drafter and option."""

import tomllib

import outrider
from outrider.config import Config
from pages import README, blocks, read


def test_the_config_example_is_valid() -> None:
    config = Config.model_validate(tomllib.loads(blocks(README, "toml")[0].text))
    assert config.drafter_choice is not None
    assert config.target.model == "smollm2"
    nested = Config.model_validate(tomllib.loads(blocks(README, "toml")[1].text)).drafter_choice
    assert nested is not None
    outrider.choose(nested.name, nested.options)


def test_every_drafter_and_option_is_in_the_table() -> None:
    for record in outrider.drafters():
        if record.distribution == "outrider":
            (row,) = [line for line in read(README).splitlines() if line.startswith(f"| `{record.name}` |")]
            assert all(f"`{option}`" in row for option in record.options)
