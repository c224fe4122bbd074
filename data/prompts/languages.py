"""Prompts in languages other than English."""

from laps_sd.data.prompts.drawing import Drawing

_FORMS = {
    "es": (
        "¿Qué es {}? Responde en una frase.", "Escribe un cuento corto sobre {}.",
        "Nombra {n} cosas relacionadas con {}.",
        "¿Por qué es importante {}?", "Escribe una redacción sobre {} de {n} párrafos.", "Sí o no: ¿te gusta {}?",
    ),
    "fr": (
        "Qu'est-ce que {} ? Réponds en une phrase.", "Écris une courte histoire sur {}.", "Cite {n} faits sur {}.",
        "Explique {} à un enfant.", "Écris un poème de {n} vers sur {}.", "Traduis en anglais : {}",
    ),
    "de": (
        "Was ist {}? Antworte in einem Satz.", "Schreibe eine kurze Geschichte über {}.",
        "Nenne {n} Tatsachen über {}.",
        "Erkläre {} einem Kind.", "Schreibe einen Aufsatz mit {n} Absätzen über {}.", "Übersetze ins Englische: {}",
    ),
    "it": (
        "Che cos'è {}? Rispondi in una frase.", "Scrivi una breve storia su {}.", "Elenca {n} fatti su {}.",
        "Spiega {} a un bambino.", "Scrivi una poesia di {n} versi su {}.", "Traduci in inglese: {}",
    ),
    "pt": (
        "O que é {}? Responda em uma frase.", "Escreva uma pequena história sobre {}.", "Liste {n} fatos sobre {}.",
        "Explique {} a uma criança.", "Escreva um texto de {n} parágrafos sobre {}.", "Traduza para o inglês: {}",
    ),
    "zh": ("什么是{}?请用一句话回答。", "写一个关于{}的短故事。", "列出{n}个关于{}的事实。", "把这个词翻译成英文:{}"),
    "ar": ("ما هو {}؟ أجب بجملة واحدة.", "اكتب قصة قصيرة عن {}.", "اذكر {n} حقائق عن {}.", "ترجم إلى الإنجليزية: {}"),
    "ru": ("Что такое {}? Ответь одним предложением.", "Напиши короткий рассказ: {}.", "Назови {n} факта: {}.",
           "Переведи на английский: {}"),
}  # fmt: skip

_TOPICS = {
    "es": ("la lluvia", "el pan", "la luna", "el mar", "la amistad", "el tren", "la música", "el invierno", "el café"),
    "fr": ("la pluie", "le pain", "la lune", "la mer", "l'amitié", "le train", "la musique", "l'hiver", "le café"),
    "de": ("den Regen", "das Brot", "den Mond", "das Meer", "die Freundschaft", "den Zug", "die Musik", "den Winter"),
    "it": ("la pioggia", "il pane", "la luna", "il mare", "l'amicizia", "il treno", "la musica", "l'inverno"),
    "pt": ("a chuva", "o pão", "a lua", "o mar", "a amizade", "o trem", "a música", "o inverno", "o café"),
    "zh": ("雨", "面包", "月亮", "大海", "友谊", "火车", "音乐", "冬天", "茶"),
    "ar": ("المطر", "الخبز", "القمر", "البحر", "الصداقة", "القطار", "الموسيقى", "الشتاء"),
    "ru": ("дождь", "хлеб", "луна", "море", "дружба", "поезд", "музыка", "зима", "чай"),
}  # fmt: skip


def other_language(d: Drawing) -> tuple[str, str]:
    """Return a question of the kind ``other_language`` and what it is about."""
    language = d.one(tuple(_FORMS))
    topic = d.one(_TOPICS[language])
    return d.one(_FORMS[language]).format(topic, n=d.number(2, 9)), f"{language},{topic}"


KINDS = {"other_language": other_language}
