"""Words that the templates are filled with."""

TOPICS = (
    "rain", "volcanoes", "bicycles", "honey bees", "the moon", "bread", "rivers", "libraries", "glass", "trains",
    "sleep", "coral reefs", "maps", "the printing press", "salt", "windmills", "chess", "whales", "paper", "gardens",
    "bridges", "lighthouses", "magnets", "tea", "the heart", "deserts", "music", "clocks", "snow", "forests",
    "recycling", "vaccines", "solar panels", "friendship", "earthquakes", "sharks", "kites", "the internet", "soap",
    "money", "dreams", "penguins", "steam engines", "vitamins", "rainbows", "cities", "sailing", "batteries", "owls",
    "mountains", "electric cars", "photography", "volcanic islands", "ice cream", "robots", "the sun", "wool",
    "fireworks", "tides", "potatoes",
)  # fmt: skip

LISTED = (
    "fruits", "animals that live in the sea", "countries in Europe", "kitchen tools", "musical instruments",
    "things found in a school bag", "sports", "colours", "jobs in a hospital", "vegetables", "kinds of weather",
    "farm animals", "planets and moons", "birds", "insects", "board games", "hobbies", "types of shoes",
    "breakfast foods", "rivers of the world", "metals", "tools for gardening", "things that are round",
    "words that rhyme with day", "reasons to learn a language", "ways to save water", "tips for better sleep",
    "ideas for a birthday party", "questions for a job interview", "healthy snacks", "ways to reduce stress",
    "names for a cat", "things to pack for a camping trip", "rules for a classroom", "uses for a paper clip",
    "benefits of walking", "mistakes to avoid when cooking rice", "safety rules for cycling", "ideas for a school play",
    "ways to say thank you",
)  # fmt: skip

CAPITALS = {
    "France": "Paris", "Japan": "Tokyo", "Kenya": "Nairobi", "Peru": "Lima", "Norway": "Oslo", "Egypt": "Cairo",
    "Canada": "Ottawa", "Greece": "Athens", "Poland": "Warsaw", "Chile": "Santiago", "Spain": "Madrid",
    "Italy": "Rome", "Austria": "Vienna", "Cuba": "Havana", "Iceland": "Reykjavik", "Portugal": "Lisbon",
    "Ireland": "Dublin", "Hungary": "Budapest", "Sweden": "Stockholm", "Thailand": "Bangkok", "Finland": "Helsinki",
    "Jordan": "Amman", "Ghana": "Accra", "Vietnam": "Hanoi", "Denmark": "Copenhagen", "Nepal": "Kathmandu",
}  # fmt: skip

OPPOSITES = (
    "hot", "early", "full", "brave", "noisy", "narrow", "ancient", "generous", "heavy", "smooth", "bright", "sweet",
    "deep", "fast", "happy", "open", "strong", "wet", "near", "cheap", "polite", "sharp", "thick", "simple", "public",
)  # fmt: skip

CLAIMS = (
    "a spider is an insect", "water boils at 100 degrees Celsius at sea level", "the sun is a star",
    "bats are birds", "gold is heavier than water", "fish can breathe air like people", "ice floats on water",
    "the moon makes its own light", "sound travels faster than light", "a triangle has four sides",
    "whales are mammals", "plants need light to grow", "iron is a metal", "a year on Mars is longer than on Earth",
    "penguins can fly", "honey comes from bees", "seven is an even number", "the heart pumps blood",
    "snakes have legs", "a tomato grows on a plant", "Africa is a country", "a piano has strings",
    "oil mixes with water", "a week has eight days", "an octopus has eight arms", "paper is made from wood",
    "diamonds are made of carbon", "the Pacific is the largest ocean", "mushrooms are animals", "zero is a number",
)  # fmt: skip

PEOPLE = (
    "Amina", "Bruno", "Chiara", "Daniel", "Elif", "Farid", "Greta", "Hiro", "Ines", "Jonas", "Keiko", "Lena", "Mateo",
    "Nadia", "Oskar", "Priya", "Quentin", "Rosa", "Samir", "Tessa", "Ulrich", "Vera", "Wanda", "Yusuf", "Zoe",
)  # fmt: skip

PLACES = (
    "the harbour", "a small village", "the old station", "a mountain hut", "the market square", "an empty theatre",
    "the river bank", "a school kitchen", "a lighthouse", "the botanical garden", "a snowy street", "a night train",
    "the town library", "a desert camp", "a workshop full of clocks", "the roof of a tall house",
)  # fmt: skip

OBJECTS = (
    "a red umbrella", "a broken radio", "a box of letters", "an old map", "a silver key", "a wooden boat",
    "a lost dog", "a strange coin", "a blue bicycle", "a jar of seeds", "a painting", "a heavy suitcase",
    "a kite", "a music box", "a lantern", "a pair of glasses",
)  # fmt: skip

GOODS = (
    "apples", "pencils", "lamps", "chairs", "notebooks", "bottles of juice", "tickets", "bags of rice", "bricks",
    "candles", "books", "shirts", "plates", "marbles", "stamps", "screws",
)  # fmt: skip

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

TASKS_CODE_SMALL = (
    "adds two numbers", "reverses a string", "checks whether a number is even", "counts the vowels in a text",
    "returns the largest item of a list", "computes the factorial of a number", "removes duplicates from a list",
    "checks whether a word is a palindrome", "converts Celsius to Fahrenheit", "sums the digits of a number",
    "merges two sorted lists", "finds the most common word in a text", "returns the first n Fibonacci numbers",
    "checks whether a year is a leap year", "flattens a nested list", "capitalises every word of a sentence",
    "counts how often each letter occurs", "computes the greatest common divisor", "rotates a list by k places",
    "checks whether two words are anagrams", "finds the second largest number", "computes the mean and the median",
    "removes all spaces from a string", "returns the prime numbers up to n", "swaps keys and values of a dictionary",
)  # fmt: skip

TASKS_CODE_LARGE = (
    "a bank account with deposits, withdrawals and a history", "a to-do list that is saved to a file",
    "a library that lends books to members", "a text adventure with three rooms", "a shopping cart with discounts",
    "a stack and a queue on top of a linked list", "a parser for simple arithmetic expressions",
    "a matrix with addition and multiplication", "a thermostat with a schedule", "a parking garage with several floors",
    "a card game deck with shuffling and dealing", "a timetable for trains", "a vending machine with coins",
    "a simple chat room with users and messages", "a graph with breadth-first search", "a cache with a size limit",
    "a grade book that prints a report for every pupil", "a robot that walks on a grid", "a quiz with scores",
    "an inventory of spare parts with warnings when stock is low",
)  # fmt: skip

LANGUAGES_CODE = ("Python", "JavaScript", "Java", "C", "Rust", "Go", "Ruby")

HOW_TO = (
    "bake a simple bread", "change a bicycle tyre", "plant a tree", "write a letter of application", "clean a window",
    "learn to swim", "make a paper plane", "prepare for an exam", "cook tomato soup", "set up a tent",
    "train a puppy", "paint a wall", "organise a small concert", "start a vegetable garden", "knit a scarf",
    "save money every month", "make a cup of tea", "fold a shirt", "tie a tie", "iron a shirt", "brew coffee",
    "plan a trip by train", "repair a wooden chair", "boil an egg", "build a bird house",
)  # fmt: skip

PAIRS = (
    ("cats", "dogs"), ("tea", "coffee"), ("trains", "planes"), ("books", "films"), ("cities", "villages"),
    ("summer", "winter"), ("paper maps", "digital maps"), ("gas stoves", "electric stoves"), ("rice", "pasta"),
    ("rivers", "lakes"), ("wood", "steel"), ("email", "letters"), ("renting", "buying a home"), ("walking", "running"),
    ("solar power", "wind power"), ("Python", "Java"), ("novels", "poems"), ("buses", "trams"), ("apples", "oranges"),
    ("online classes", "classroom lessons"),
)  # fmt: skip

SENTENCES = (
    "The train leaves at seven in the morning.", "I would like a cup of tea, please.", "Where is the nearest pharmacy?",
    "My sister lives in a small house by the sea.", "We have no more bread.",
    "The children are playing in the garden.",
    "It will rain tomorrow afternoon.", "Could you help me carry this box?", "The museum is closed on Mondays.",
    "He forgot his umbrella on the bus.", "They are building a new bridge over the river.",
    "Good night and sleep well.",
    "The doctor told her to drink more water.", "This book is more interesting than the film.",
    "I am learning to cook.",
    "The market opens early on Saturdays.", "Please turn off the lights.", "She bought three tickets for the concert.",
    "The coffee is too hot to drink.", "Our neighbours have a very old dog.", "I lost my keys yesterday evening.",
    "The teacher asked us to write a short story.", "He is afraid of flying.", "We walked along the beach for hours.",
)  # fmt: skip

REVIEWS = (
    "The soup was cold and the waiter was rude.", "A wonderful evening, I would come back any time.",
    "The battery died after two days.", "It does what it says, nothing more.", "Best headphones I have ever owned!",
    "The room smelled of smoke and the bed was hard.", "Delivery was quick and the box was intact.",
    "I waited an hour and nobody answered.", "The story drags, but the ending is lovely.", "Not worth the price.",
    "My children laughed the whole time.", "The screen is dim and the buttons stick.", "Friendly staff and fresh food.",
    "It broke the first time I used it.", "An average film with a good soundtrack.",
    "The colours are even nicer in person.",
)  # fmt: skip
