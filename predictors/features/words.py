"""The words that tell how long an answer will be, in classes; data of the lexical features, no logic.

Chosen by reading what people ask language models, not by fitting: a class that helps on one trace should mean the
same on the next. English first, with the commonest request words of other languages.
"""

from __future__ import annotations

CLASSES: dict[str, str] = {
    "ask_fact": "what who whom whose when where which was were did do does is are can could will would has have should",
    "ask_how": "how why cómo comment wie warum pourquoi porqué como",
    "write": "write create generate compose draft develop design build make produce craft prepare escribe schreibe"
    " écris rédige crie escreva napisz напиши 写",
    "long_form": "essay article blog story script novel chapter poem song lyrics letter email speech proposal report"
    " post plan itinerary curriculum course syllabus guide tutorial lesson recipe outline documentation whitepaper"
    " contract policy resume cv screenplay dialogue conversation scene review campaign strategy business roadmap",
    "long_mark": "detailed detail details comprehensive thorough complete full long longer extensive depth elaborate"
    " expand in-depth step steps everything entire all each every extend continue",
    "short_mark": "short brief briefly concise concisely only just simply one single simple quick quickly summary tldr"
    " shortly shorter minimal least without",
    "explain": "explain describe discuss analyze analyse elaborate compare contrast evaluate difference differences"
    " examine explore explica erkläre explique объясни 解释 介绍",
    "list": "list lists enumerate examples ideas suggestions suggest ways tips reasons options names topics items"
    " points bullet bullets brainstorm recommend recommendations give provide share table",
    "summarize": "summarize summarise summary abstract condense shorten tl outline resume resuma summarizing key",
    "translate": "translate translation english spanish french german chinese japanese korean russian portuguese"
    " italian arabic hindi language translated",
    "echo": "rewrite rephrase paraphrase correct fix edit improve proofread revise refactor convert reword polish"
    " format modify replace update add remove change transform refine optimize implement debug repeat following above",
    "extract": "extract classify classification classes label identify choose select pick match sentiment categorize"
    " category categories detect determine rate score true false yes no answer option options correct retrieve given",
    "code": "code python javascript java function class sql html css php api script program app react node json bash"
    " django flask pandas numpy typescript rust c++ c# swift kotlin excel formula regex algorithm query database"
    " def return import print const var let public void int string async await component implementation",
    "math": "calculate compute solve equation many much total percent percentage sum average per each probability"
    " number integral derivative cost price left times sold buys bought twice half hours minutes miles dollars",
    "role": "act role pretend roleplay imagine you're assistant expert character simulate behave persona reply respond"
    " confirm understand understood ready ok hello hi hey thanks thank please",
    "follow_up": "it this that these those above previous again more another same continue next also now but then too",
    "no_extra": "no not don't dont without only nothing avoid never except omit skip output explanation explanations",
    "units": "word words sentence sentences paragraph paragraphs page pages line lines character characters tokens",
}

NUMBER_WORDS: dict[str, int] = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "fifty": 50, "hundred": 100, "thousand": 1000,
}  # fmt: skip

#: What people ask a number of, and roughly how many tokens one takes; the model learns the rest.
ASKED_UNITS: dict[str, tuple[str, float]] = {
    "word": ("words", 1.35), "words": ("words", 1.35), "token": ("words", 1.0), "tokens": ("words", 1.0),
    "character": ("words", 0.25), "characters": ("words", 0.25),
    "line": ("items", 12.0), "lines": ("items", 12.0), "sentence": ("items", 24.0), "sentences": ("items", 24.0),
    "paragraph": ("items", 90.0), "paragraphs": ("items", 90.0), "page": ("items", 500.0), "pages": ("items", 500.0),
    "item": ("items", 25.0), "items": ("items", 25.0), "point": ("items", 35.0), "points": ("items", 35.0),
    "bullet": ("items", 30.0), "bullets": ("items", 30.0), "example": ("items", 30.0), "examples": ("items", 30.0),
    "idea": ("items", 30.0), "ideas": ("items", 30.0), "reason": ("items", 40.0), "reasons": ("items", 40.0),
    "way": ("items", 40.0), "ways": ("items", 40.0), "tip": ("items", 35.0), "tips": ("items", 35.0),
    "step": ("items", 40.0), "steps": ("items", 40.0), "question": ("items", 25.0), "questions": ("items", 25.0),
    "name": ("items", 8.0), "names": ("items", 8.0), "title": ("items", 14.0), "titles": ("items", 14.0),
    "headline": ("items", 14.0), "headlines": ("items", 14.0), "keyword": ("items", 6.0), "keywords": ("items", 6.0),
    "topic": ("items", 14.0), "topics": ("items", 14.0), "option": ("items", 25.0), "options": ("items", 25.0),
    "suggestion": ("items", 30.0), "suggestions": ("items", 30.0), "fact": ("items", 30.0), "facts": ("items", 30.0),
    "stanza": ("items", 40.0), "stanzas": ("items", 40.0), "verse": ("items", 40.0), "verses": ("items", 40.0),
    "story": ("items", 120.0), "stories": ("items", 120.0), "tweet": ("items", 45.0), "tweets": ("items", 45.0),
    "row": ("items", 20.0), "rows": ("items", 20.0), "recipes": ("items", 150.0), "books": ("items", 25.0),
    "movies": ("items", 20.0), "things": ("items", 30.0), "phrases": ("items", 12.0),
}  # fmt: skip
