"""The table of token classes: what each token's text is, whatever the tokenizer does with blanks."""

import numpy as np
import pytest

from laps_sd.data.progress.classes import CLASSES, COLUMN, VERSION, TokenClasses


class Pieces:
    """A tokenizer of given pieces that, like SentencePiece, drops the blank at the start of a text."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = ("a", *pieces)

    def __len__(self):
        return len(self.pieces)

    def encode(self, text, *, add_special_tokens=True):
        return [self.pieces.index(text)]

    def decode(self, token_ids, *, skip_special_tokens=False):
        text = "".join(self.pieces[i] for i in token_ids)
        return text.replace("<s>", "").removeprefix(" ")


def classes_of(text: str) -> dict[str, int]:
    """The classes of a token of this text, those that are 0 aside."""
    row = TokenClasses.of_texts([text]).rows(np.array([0]))[0]
    return {name: int(value) for name, value in zip(CLASSES, row, strict=True) if value}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\n", {"chars": 1, "newlines": 1, "ends_line": 1}),
        (".\n\n", {"chars": 3, "newlines": 2, "ends_line": 1, "blank_line": 1, "sentence_end": 1, "after_number": 1}),
        ("  ", {"chars": 2, "spaces": 1}),
        ("。", {"chars": 1, "sentence_end": 1, "foreign": 1}),
        (" **", {"chars": 3, "bold": 1}),
        ("```", {"chars": 3, "fence": 1}),
        (" |", {"chars": 2, "bar": 1}),
        ("##", {"chars": 2, "heading": 1}),
        (" five", {"chars": 5, "number": 6}),
        ("12", {"chars": 2, "digit": 1, "number": 13}),
        ("2024", {"chars": 4, "digit": 1}),
        (" conclusion", {"chars": 11, "closing": 1}),
        (" Sorry", {"chars": 6, "apology": 1, "capital": 1}),
        ("水", {"chars": 1, "foreign": 1, "unspaced": 1}),
        ("", {}),
    ],
)
def test_a_token_is_classed_by_its_text(text, found):
    assert classes_of(text) == found


@pytest.mark.parametrize("mark", ["-", " *", "•", " +"])
def test_what_starts_an_item_is_a_bullet(mark):
    assert classes_of(mark)["bullet"] == 1


def test_a_blank_before_a_word_is_seen_although_decoding_the_token_alone_loses_it():
    table = TokenClasses.of(Pieces(" house", "<s>", "\n"))
    assert table.rows(np.array([1]))[0, COLUMN["chars"]] == 6
    assert not table.rows(np.array([2])).any()  # a special token is no text
    assert table.rows(np.array([3]))[0, COLUMN["newlines"]] == 1


def test_a_token_that_its_tokenizer_cannot_decode_is_of_no_class():
    class Holes(Pieces):
        def decode(self, token_ids, *, skip_special_tokens=False):
            if 1 in token_ids:
                raise OverflowError("no such token")
            return super().decode(token_ids)

    table = TokenClasses.of(Holes(" house", "\n"))
    assert not table.rows(np.array([1])).any()
    assert table.rows(np.array([2])).any()


@pytest.mark.parametrize("unknown", [-1, 3, 2**40])
def test_ids_beyond_the_vocabulary_are_of_no_class(unknown):
    table = TokenClasses.of_texts(["a", "b", "c"])
    assert len(table) == 3
    assert table.rows(np.array([0, unknown])).any(axis=1).tolist() == [True, False]


def test_the_name_holds_the_version_and_tells_tokenizers_apart():
    one, same, other = (TokenClasses.of_texts(texts) for texts in (["a", "."], ["b", "."], [".", "a"]))
    assert one.name.startswith(f"v{VERSION}-")
    assert one.name == same.name  # which letter it is enters no class
    assert one.name != other.name


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((2, 3), dtype=np.uint8),
        np.zeros((2, len(CLASSES))),
        np.ones((2, len(CLASSES)), dtype=np.uint8),
        np.zeros(len(CLASSES), dtype=np.uint8),
    ],
)
def test_what_is_no_table_is_refused(table):
    with pytest.raises(ValueError, match="token classes need"):
        TokenClasses(table)
