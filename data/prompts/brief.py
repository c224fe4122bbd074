"""Kinds with short answers: yes or no, a word, a fact, a number, a label, a line of JSON."""

from laps_sd.data.prompts import material as m
from laps_sd.data.prompts.drawing import Drawing


def yes_no(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``yes_no`` and what it is about."""
    claim = d.one(m.CLAIMS)
    form = d.one(
        (
            "Is it true that {}? Answer yes or no.",
            "Answer with a single word, yes or no: is it true that {}?",
            "True or false: {}.",
            "Somebody says that {}. Are they right? Just say yes or no.",
        )
    )
    return form.format(claim), claim


def one_word(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``one_word`` and what it is about."""
    word = d.one(m.OPPOSITES)
    form = d.one(
        (
            "What is the opposite of '{}'? Reply with one word.",
            "Give one synonym of '{}'. Only the word.",
            "In one word: what is the opposite of {}?",
            "Write the word '{}' in capital letters.",
            "Spell the word '{}' backwards.",
        )
    )
    return form.format(word), word


def fact(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``fact`` and what it is about."""
    country = d.one(tuple(m.CAPITALS))
    form = d.one(
        (
            "What is the capital of {0}?",
            "{1} is the capital of which country?",
            "On which continent is {0}?",
            "Which language do most people in {0} speak?",
            "Name the capital of {0}, nothing else.",
        )
    )
    return form.format(country, m.CAPITALS[country]), country


def arithmetic(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``arithmetic`` and what it is about."""
    a, b = d.number(2, 999), d.number(2, 99)
    form = d.one(
        (
            "What is {0} + {1}?",
            "{0} - {1} =",
            "Compute {0} times {1}. Give only the number.",
            "How much is {0} divided by {1}?",
        )
    )
    return form.format(a, b), f"{a},{b}"


def word_problem(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``word_problem`` and what it is about."""
    who, other = d.some(m.PEOPLE, 2)
    goods = d.one(m.GOODS)
    a, b, c = d.number(12, 90), d.number(2, 11), d.number(2, 9)
    story = d.one(
        (
            "{who} has {a} {goods} and gives {b} of them to {other}. Then {who} buys {c} more.",
            "{who} buys {b} boxes with {c} {goods} each and already has {a} at home.",
            "A shop sells {goods} at {c} coins each. {who} has {a} coins and buys {b} of them, or as many as possible.",
            "{who} packs {a} {goods} into boxes of {c}. {other} takes {b} of the boxes away.",
        )
    )
    ask = d.one(
        (
            " How many are there in the end? Explain step by step.",
            " How many are left? Think step by step and give the result at the end.",
            " Write an equation, solve it, and check the result.",
            " Give only the final number.",
        )
    )
    return story.format(who=who, other=other, goods=goods, a=a, b=b, c=c) + ask, f"{who},{goods},{a},{b},{c}"


def classify(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``classify`` and what it is about."""
    review = d.one(m.REVIEWS)
    form = d.one(
        (
            "Is this review positive, negative or neutral? Answer with one word.\n\n{}",
            "Classify the sentiment of the text.\nText: {}\nSentiment:",
            "Give the following review a score from 1 to 5. Only the number.\n{}",
            "Review: {}\nWould the writer buy again? Answer yes or no and give one reason.",
        )
    )
    return form.format(review), review


def extraction(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``extraction`` and what it is about."""
    who, other = d.some(m.PEOPLE, 2)
    goods, place = d.one(m.GOODS), d.one(m.PLACES)
    day, month, count, price = d.number(1, 28), d.one(m.MONTHS), d.number(3, 80), d.number(5, 400)
    text = (
        f"On {day} {month}, {who} met {other} at {place} and ordered {count} {goods} for {price} euros. "
        f"{other} promised to deliver them within {d.number(2, 9)} days."
    )
    ask = d.one(
        (
            "Which date is mentioned?",
            "List the names of all people.",
            "How much money was paid? Answer with the amount only.",
            "Extract the product, the quantity and the price, one per line.",
            "Who delivers the order?",
            "Copy the last sentence.",
        )
    )
    order = d.one(("{0}\n\n{1}", "{1}\n\nText: {0}", "Read the text and answer.\n{0}\nQuestion: {1}"))
    return order.format(text, ask), text


def json_object(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``json_object`` and what it is about."""
    who = d.one(m.PEOPLE)
    age, place, likes = d.number(18, 80), d.one(m.PLACES), d.some(m.TOPICS, d.number(1, 5))
    text = f"{who} is {age} years old, works at {place} and likes {', '.join(likes)}."
    form = d.one(
        (
            "Turn this into a JSON object with the keys name, age, workplace and likes:\n{}",
            "Return only valid JSON with name and age.\n{}",
            "Convert to YAML:\n{}",
            "Write this information as a Markdown table with two columns.\n{}",
        )
    )
    return form.format(text), text


KINDS = {
    "yes_no": yes_no,
    "one_word": one_word,
    "fact": fact,
    "arithmetic": arithmetic,
    "word_problem": word_problem,
    "classify": classify,
    "extraction": extraction,
    "json": json_object,
}
