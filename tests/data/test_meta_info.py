"""What SGLang says about a server, in the words of a record: how deep its drafts can be accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laps_sd.data.meta_info import from_server_info, most_correct_drafts


@pytest.mark.parametrize(
    ("algorithm", "tokens", "steps", "topk", "most"),
    [
        (None, None, None, None, None),
        ("STANDALONE", 4, 3, 1, 3),  # a chain of 3 drafts behind the root
        ("EAGLE", 8, 5, 4, 5),  # a tree of 7 drafts, 5 levels deep
        ("EAGLE", 4, 5, 4, 3),  # 3 drafts make no path of 5
        ("EAGLE", None, 5, 4, 5),
        ("EAGLE", 8, None, 4, 7),
        ("DFLASH", 16, 1, 1, 15),  # a block, drafted in one step
        ("NGRAM", 8, 1, 8, 7),  # SGLang puts the breadth of its trie into topk and a share of the tokens into steps
        ("NGRAM", None, None, None, None),
    ],
)
def test_a_step_accepts_at_most_the_longest_path_of_what_is_drafted(
    algorithm: str | None, tokens: int | None, steps: int | None, topk: int | None, most: int | None
) -> None:
    assert most_correct_drafts(algorithm, tokens, steps, topk) == most


@given(st.sampled_from(["EAGLE", "STANDALONE", "NGRAM"]), st.integers(2, 99), st.integers(1, 99), st.integers(1, 9))
def test_a_record_of_the_server_and_a_step_in_it_agree(algorithm: str, tokens: int, steps: int, topk: int) -> None:
    said = {"speculative_num_draft_tokens": tokens, "speculative_num_steps": steps, "speculative_eagle_topk": topk}
    info = {"model_path": "m", "speculative_algorithm": algorithm, **said}
    found = from_server_info(info)["max_correct_drafts"]
    assert found == most_correct_drafts(algorithm, tokens, steps, topk)
    assert 1 <= found <= tokens - 1
