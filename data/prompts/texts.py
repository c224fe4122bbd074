"""Kinds that work on a text of their own: repeating, counting, summarising, rewriting, translating, answering."""

from laps_sd.data.prompts import material as m
from laps_sd.data.prompts.drawing import Drawing


def paragraph(d: Drawing, sentences: int) -> str:
    """Make up a report of a small event, one sentence after the other."""
    who, other = d.some(m.PEOPLE, 2)
    place, thing, topic = d.one(m.PLACES), d.one(m.OBJECTS), d.one(m.TOPICS)
    month = d.one(m.MONTHS)
    lines = [
        f"In {month}, {who} went to {place} to give a talk about {topic}.",
        f"On the way {who} found {thing} and decided to keep it.",
        f"{other} was already waiting there with {d.number(12, 300)} guests.",
        f"The talk lasted {d.number(20, 90)} minutes and covered the history of {topic}.",
        f"After the talk, {other} asked what {topic} would mean for the people of the town.",
        f"{who} answered that nobody could know, but that {d.number(2, 9)} projects had been started.",
        f"Later in the evening {thing} disappeared, and nobody could say who had taken it.",
        f"A week after that, {other} wrote a letter in which the whole story was explained.",
        f"The town paper printed the letter together with a drawing of {place}.",
        f"Since then, a meeting about {topic} has been held every {d.one(m.MONTHS)}.",
    ]
    return " ".join(lines[:sentences])


def repeat(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``repeat`` and what it is about."""
    text = d.one((paragraph(d, d.number(1, 4)), ", ".join(d.some(m.TOPICS, d.number(4, 14))), d.one(m.SENTENCES)))
    form = d.one(
        (
            "Repeat the following text exactly:\n{}",
            "Copy this word for word.\n\n{}",
            "Say this twice: {}",
            "Repeat this {n} times, one per line: {}",
            'Output the text between the quotes unchanged: "{}"',
        )
    )
    return form.format(text, n=d.number(3, 8)), text


def sequence(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``sequence`` and what it is about."""
    a, b, step = d.number(1, 20), d.number(21, 120), d.number(2, 9)
    form = d.one(
        (
            "Count from {a} to {b}.",
            "Count backwards from {b} to {a}.",
            "Write the multiplication table of {step} up to {a} times {step}.",
            "Write the numbers from {a} to {b} in steps of {step}, separated by commas.",
            "Write the first {a} even numbers.",
            "Print the squares of the numbers 1 to {a}, one per line.",
        )
    )
    return form.format(a=a, b=b, step=step), f"{a},{b},{step}"


def sorting(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``sorting`` and what it is about."""
    words = d.some(m.TOPICS, d.number(3, 12))
    form = d.one(
        (
            "Sort these words in alphabetical order: {}",
            "Put each item on its own line: {}",
            "Number these items: {}",
            "Which of these is the odd one out, and why? {}",
            "Write one sentence about each of these: {}",
        )
    )
    return form.format(", ".join(words)), ",".join(words)


def summary(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``summary`` and what it is about."""
    text = paragraph(d, d.number(4, 10))
    ask = d.one(
        (
            "Summarise the text in one sentence.",
            "Summarise the following in three bullet points.",
            "Give the text a title of at most six words.",
            "Write a summary of the text for a newspaper.",
            "TL;DR:",
            "What is the main idea of this text?",
        )
    )
    return d.one((f"{ask}\n\n{text}", f"{text}\n\n{ask}")), text


def question(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``question`` and what it is about."""
    text = paragraph(d, d.number(3, 8))
    ask = d.one(
        (
            "Who gave the talk?",
            "Where did it take place? Answer with the place only.",
            "What was found on the way?",
            "In which month did the story begin?",
            "What happened after the talk? Describe it in detail.",
            "Write three questions that this text answers.",
        )
    )
    return f"Use the text to answer.\n\n{text}\n\nQuestion: {ask}\nAnswer:", text


def rewriting(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``rewriting`` and what it is about."""
    text = d.one((d.one(m.SENTENCES), paragraph(d, d.number(1, 5))))
    ask = d.one(
        (
            "Rewrite this more politely:",
            "Rewrite the text in the future tense:",
            "Make this shorter:",
            "Make this longer and add details:",
            "Rewrite this for a six-year-old child:",
            "Correct the mistakes in this text, if there are any:",
            "Put this into a formal style:",
            "Paraphrase:",
            "Turn this into a dialogue between two people:",
        )
    )
    return f"{ask} {text}", text


def translation(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``translation`` and what it is about."""
    text = " ".join(d.some(m.SENTENCES, d.number(1, 3)))
    target = d.one(("French", "German", "Spanish", "Italian", "Portuguese", "Dutch"))
    form = d.one(
        ("Translate into {1}: {0}", "How do you say this in {1}? {0}", "Translate to {1}, only the translation.\n{0}")
    )
    return form.format(text, target), text


KINDS = {
    "repeat": repeat,
    "sequence": sequence,
    "sorting": sorting,
    "summary": summary,
    "question": question,
    "rewriting": rewriting,
    "translation": translation,
}
