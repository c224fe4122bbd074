"""Kinds whose answers are written freely: lists, explanations, code, letters, stories, essays, small talk."""

from laps_sd.data.prompts import material as m
from laps_sd.data.prompts.drawing import Drawing


def listing(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``listing`` and what it is about."""
    what, count = d.one(m.LISTED), d.number(2, 25)
    form = d.one(
        (
            "List {n} {what}.",
            "Name {n} {what}, separated by commas.",
            "Give me {n} {what} with a short explanation for each.",
            "I need {n} {what}. Number them.",
            "Write {n} {what}, one per line, no explanations.",
            "Can you think of {n} {what}?",
        )
    )
    return form.format(n=count, what=what), what


def explanation(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``explanation`` and what it is about."""
    topic = d.one(m.TOPICS)
    form = d.one(
        (
            "Explain {} in one sentence.",
            "Explain {} to a child.",
            "Explain in detail how {} came to be and why it matters.",
            "What should everybody know about {}?",
            "Define {} in at most ten words.",
            "Why do people care about {}?",
            "Tell me something surprising about {}.",
        )
    )
    return form.format(topic), topic


def essay(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``essay`` and what it is about."""
    topic = d.one(m.TOPICS)
    form = d.one(
        (
            "Write an essay about {} with an introduction, three arguments and a conclusion.",
            "Write a blog post of about {n} words about {}.",
            "Write {p} paragraphs on the history of {}.",
            "Write a speech about {} for a school assembly.",
            "Discuss the advantages and disadvantages of {} in {p} paragraphs.",
        )
    )
    return form.format(topic, n=d.number(1, 6) * 100, p=d.number(2, 6)), topic


def story(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``story`` and what it is about."""
    who, place, thing = d.one(m.PEOPLE), d.one(m.PLACES), d.one(m.OBJECTS)
    form = d.one(
        (
            "Tell a story about {0}, who finds {2} at {1}.",
            "Write a very short story, at most three sentences: {0}, {1}, {2}.",
            "Begin a mystery novel in which {2} is found at {1}. The detective is called {0}.",
            "Write a dialogue between {0} and a stranger at {1} about {2}.",
            "Write a bedtime story about {2}. The hero is {0}.",
        )
    )
    return form.format(who, place, thing), f"{who},{place},{thing}"


def poem(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``poem`` and what it is about."""
    topic = d.one(m.TOPICS)
    form = d.one(
        (
            "Write a haiku about {}.",
            "Write a poem about {} with {n} verses.",
            "Write a limerick about {}.",
            "Write two lines that rhyme about {}.",
            "Write the chorus of a song about {}.",
        )
    )
    return form.format(topic, n=d.number(2, 6)), topic


def code_small(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``code_small`` and what it is about."""
    task, language = d.one(m.TASKS_CODE_SMALL), d.one(m.LANGUAGES_CODE)
    form = d.one(
        (
            "Write a {1} function that {0}.",
            "Write a {1} function that {0}. Only code, no explanation.",
            "Write a {1} function that {0} and explain every line.",
            "In {1}, what is the shortest function that {0}?",
            "Write a {1} function that {0}, with {2} test cases.",
        )
    )
    return form.format(task, language, d.number(2, 8)), task


def code_large(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``code_large`` and what it is about."""
    task, language = d.one(m.TASKS_CODE_LARGE), d.one(m.LANGUAGES_CODE)
    form = d.one(
        (
            "Write a complete {1} program for {0}.",
            "Design classes in {1} for {0}, with comments and an example of use.",
            "Write {1} code for {0} and unit tests for every part.",
            "List the classes that a {1} program for {0} needs. No code.",
        )
    )
    return form.format(task, language), task


def how_to(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``how_to`` and what it is about."""
    task = d.one(m.HOW_TO)
    form = d.one(
        (
            "How do I {}?",
            "Give step-by-step instructions: {}.",
            "In two sentences: how do you {}?",
            "What do I need in order to {}? Only a list of things.",
            "Write {n} short steps that show how to {}.",
        )
    )
    return form.format(task, n=d.number(3, 9)), task


def comparison(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``comparison`` and what it is about."""
    a, b = d.one(m.PAIRS)
    form = d.one(
        (
            "Compare {0} and {1}.",
            "Which is better, {0} or {1}? Answer in one sentence.",
            "Write a table that compares {0} and {1} in {n} aspects.",
            "Give {n} differences between {0} and {1}.",
            "{0} or {1}? Pick one, one word only.",
        )
    )
    return form.format(a, b, n=d.number(2, 8)), a


def letter(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``letter`` and what it is about."""
    who, other = d.some(m.PEOPLE, 2)
    reason = d.one(
        (
            "a delayed delivery of {goods}",
            "an invitation to {place}",
            "thanks for {thing}",
            "a question about {topic}",
            "an apology for losing {thing}",
        )
    ).format(goods=d.one(m.GOODS), place=d.one(m.PLACES), thing=d.one(m.OBJECTS), topic=d.one(m.TOPICS))
    form = d.one(
        (
            "Write an email from {0} to {1}: {2}.",
            "Write a formal letter from {0} to {1}. Subject: {2}.",
            "Write a text message of at most 20 words from {0} to {1}: {2}.",
            "Suggest a subject line for an email about {2}.",
        )
    )
    return form.format(who, other, reason), reason


def chat(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``chat`` and what it is about."""
    topic, who = d.one(m.TOPICS), d.one(m.PEOPLE)
    form = d.one(
        (
            "Hi, I am {1}! Do you like {0}?",
            "Hello! Can you recommend a book about {0}?",
            "I have to give a talk about {0} tomorrow and I am nervous. Any advice?",
            "My friend {1} only ever talks about {0}. What should I do?",
            "Tell me a joke about {0}.",
            "Good morning {1}!",
            "Thanks, that helped a lot with {0}. Bye!",
            "What would you ask an expert on {0}?",
        )
    )
    return form.format(topic, who), topic


KINDS = {
    "list": listing,
    "explanation": explanation,
    "essay": essay,
    "story": story,
    "poem": poem,
    "code_small": code_small,
    "code_large": code_large,
    "how_to": how_to,
    "comparison": comparison,
    "letter": letter,
    "chat": chat,
}
