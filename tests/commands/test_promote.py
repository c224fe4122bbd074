"""``laps-sd promote`` as a person types it."""


def test_a_version_is_promoted_by_its_number_or_as_the_newest(at_work, typed):
    assert typed("promote", "small", "--alias", "production") == (0, "small, production: none → v1\n", "")
    assert typed("promote", "small", "--version", 1, "--alias", "production") == (
        0, "small, production: v1 → v1\n", "",
    )  # fmt: skip


def test_what_cannot_be_promoted_is_one_sentence(at_work, typed):
    for arguments, reason in (
        (["nobody"], "there is no registered model nobody; `laps-sd train --register nobody` makes one"),
        (["small", "--version", 9], "there is no version 9 of small; there are 1"),
        (["small", "--alias", "staging", "--back"], "staging of small never named another version"),
        (["small", "--back", "--version", 1], "--back returns to the version before; leave out --version"),
        (["a/b"], "a registered model needs a name"),
    ):
        code, out, err = typed("promote", *arguments)
        assert (code, out) == (2, "")
        assert reason in err


def test_without_a_store_nothing_is_made(refused):
    assert "there is no MLflow store" in refused("promote", "small")
