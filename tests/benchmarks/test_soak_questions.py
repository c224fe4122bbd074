"""What is asked: the same for the same seed, every feature, and each endpoint in its own words."""

from soak_client import MANNERS, draw_visits
from soak_questions import FEATURES, draw_questions

QUESTIONS = draw_questions(200, 3)


def test_the_same_seed_draws_the_same() -> None:
    assert draw_questions(200, 3) == QUESTIONS
    assert draw_visits(QUESTIONS, 50, 1) == draw_visits(QUESTIONS, 50, 1)
    assert draw_visits(QUESTIONS, 50, 1) != draw_visits(QUESTIONS, 50, 2)


def test_every_feature_endpoint_and_manner_comes_up() -> None:
    assert {question.feature for question in QUESTIONS} == FEATURES.keys()
    assert {question.endpoint for question in QUESTIONS} == {"generate", "completions", "chat"}
    assert {visit.manner for visit in draw_visits(QUESTIONS, 300, 0)} == MANNERS.keys()


def test_no_request_id_begins_with_another_because_an_abort_names_all_that_begin_alike() -> None:
    ids = [visit.rid for visit in draw_visits(QUESTIONS, 120, 0)]
    assert not [(a, b) for a in ids for b in ids if a != b and b.startswith(a)]


def test_all_are_greedy_and_ask_for_the_same_in_the_words_of_their_endpoint() -> None:
    for question in QUESTIONS:
        assert question.sampling["temperature"] == 0
        body = question.body("r", {"laps_sd": {"priority": 1}}, 7, stream=True)
        assert (body["rid"], body["priority"], body["stream"]) == ("r", 7, True)
        said = body["sampling_params"] if question.endpoint == "generate" else body
        limit = "max_new_tokens" if question.endpoint == "generate" else "max_tokens"
        assert said["custom_params"] == {"laps_sd": {"priority": 1}}
        assert said[limit] == question.sampling["max_new_tokens"]
