from outrider.compare.conversations import cut, first_of_each
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt
from train.chatty import target

PROMPTS = [NamedPrompt(str(one), f"w{one} w{one + 1} w{one}", "even" if one % 2 == 0 else "odd") for one in range(6)]


def test_categories_are_chosen_evenly() -> None:
    assert [one.name for one in first_of_each(PROMPTS, 2)] == ["0", "1", "2", "3"]
    assert first_of_each(PROMPTS, None) == PROMPTS


def test_prompts_are_cut_with_their_template_whole() -> None:
    long = NamedPrompt("x", " ".join(["w1"] * 50), "qa", ("w2", " ".join(["w3"] * 50)), "w9")
    found = cut(target(), long, 20)
    for said, whole in ((found.text, long.text), (found.later[1], long.later[1])):
        assert len(encode(target(), said)) == 20
        assert encode(target(), said)[-2:] == encode(target(), whole)[-2:]
    assert (found.later[0], found.system, found.name, found.category) == ("w2", "w9", "x", "qa")
    assert cut(target(), PROMPTS[0], 20) == PROMPTS[0]
