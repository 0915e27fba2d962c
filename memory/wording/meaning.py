"""Corrections of queries: labels and words of the store in place of similar ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import NamedTuple
from unicodedata import normalize

from memory.query import Query
from memory.wording.spelling import nearest
from memory.wording.stems import is_cased, stems

#: Maximum labels of a query that are corrected, and maximum labels of a store that are compared.
MOST_SLIPS, MOST_LABELS = 16, 65536
#: Names of rooms that mean the same.
ROOMS = (
    ("living room", "lounge", "sitting room", "front room", "family room"),
    ("hallway", "hall", "corridor", "entrance hall", "entryway"), ("bathroom", "washroom"),
    ("toilet", "wc", "loo", "lavatory", "restroom"), ("bedroom", "sleeping room"), ("study", "home office"),
    ("garden", "yard", "backyard"), ("basement", "cellar"), ("attic", "loft"), ("pantry", "larder"),
    ("kitchen", "kitchenette", "tea kitchen", "galley", "office kitchen"),
    ("meeting room", "conference room", "boardroom", "board room"),
    ("storage room", "store room", "storeroom", "stock room", "stockroom", "storage", "storage area",
     "store"),
    ("parking level", "parking", "car park", "carpark", "parking garage", "garage", "parking lot",
     "parking area",
     "parking deck", "underground garage"),
    ("reception", "lobby", "front desk", "foyer", "reception area", "entrance", "entrance area"),
    ("open office", "open plan office", "open-plan office", "open plan area", "open space", "office area",
     "main office", "office floor"),
    ("canteen", "cafeteria", "break room", "lunch room", "dining hall"), ("laboratory", "lab"),
    ("workshop", "maker space", "makerspace", "workshop area"),
)  # fmt: skip
#: Synonyms, used only if the store does not have the word itself.
SYNONYMS = (
    ("person", "pedestrian", "human", "visitor", "somebody", "someone", "anybody", "anyone", "passer-by",
     "ppl", "peoples"),
    ("car", "automobile", "auto", "motor car", "motorcar"),
    ("bike", "bicycle", "cycle", "pushbike", "push bike"), ("truck", "lorry"), ("mug", "cup"),
    ("motorbike", "motorcycle"), ("sofa", "couch", "settee"),
    ("tv", "television", "telly", "tv set", "television set", "tv screen"),
    ("phone", "telephone", "mobile phone", "cell phone", "smartphone", "mobile", "cellphone", "handset"),
    ("package", "parcel"), ("letter", "post", "mail"), ("defibrillator", "defib"),
    ("oxygen cylinder", "oxygen bottle"), ("iv stand", "drip stand"),
    ("cyclist", "bicyclist", "biker", "bike rider"), ("fridge", "refrigerator", "icebox"), ("doorbell",
     "bell"),
    ("glasses", "spectacles", "eyeglasses", "specs"),
    ("cat", "kitty", "kitten", "puss", "pussy cat", "pussycat"), ("dog", "doggy", "puppy"),
    ("trash can", "rubbish bin", "garbage can", "dustbin", "bin", "waste bin", "waste basket", "wastebasket",
     "waste paper basket", "wastepaper basket", "trash bin", "garbage bin", "litter bin"),
    ("rug", "carpet"), ("pot plant", "potted plant", "houseplant", "house plant", "plant"),
    ("tram", "streetcar", "trolley"),
    ("vacuum cleaner", "vacuum", "hoover"), ("laptop", "laptop computer", "notebook computer"),
    ("remote control", "remote", "clicker", "remote controller"),
    ("medicine box", "medicine", "medication", "pill box", "pillbox", "pills"),
    ("night stand", "nightstand", "bedside table", "night table", "bedside cabinet"),
    ("backpack", "rucksack", "knapsack"), ("wallet", "billfold"), ("umbrella", "brolly"),
    ("wardrobe", "armoire"), ("cupboard", "cabinet"), ("bookshelf", "bookcase", "bookshelves"),
    ("stove", "cooker", "hob"), ("tap", "faucet"), ("torch", "flashlight"), ("hair dryer", "hairdryer"),
    ("printer", "laser printer"), ("copier", "photocopier", "copy machine", "copying machine"),
    ("projector", "beamer"), ("monitor", "computer monitor", "computer screen", "display", "screen"),
    ("computer", "pc", "desktop computer", "workstation"), ("whiteboard", "white board"),
    ("fire extinguisher", "extinguisher"),
    ("first aid kit", "first-aid kit", "first aid box", "first-aid box", "medical kit", "first aid"),
    ("defibrillator", "aed"), ("coffee machine", "coffee maker", "espresso machine", "coffeemaker"),
    ("microwave", "microwave oven"), ("kettle", "electric kettle", "water kettle"),
    ("water cooler", "water dispenser"), ("filing cabinet", "file cabinet"),
    ("pallet jack", "pallet truck", "hand pallet truck", "pallet lifter"), ("forklift", "fork lift",
     "forklift truck"),
    ("hand truck", "sack truck", "dolly", "sack barrow"), ("cart", "handcart"), ("stepladder", "step ladder"),
    ("toolbox", "tool box", "tool kit", "toolkit"), ("drill", "power drill", "cordless drill",
     "electric drill"),
    ("hard hat", "safety helmet", "helmet"),
    ("safety vest", "high-visibility vest", "hi-vis vest", "hi vis vest", "high visibility vest",
     "reflective vest"),
    ("safety glasses", "safety goggles", "goggles", "protective glasses"),
    ("headphones", "headset", "earphones"), ("badge", "access card", "key card", "keycard", "id card"),
    ("box", "carton", "cardboard box"), ("van", "delivery van"), ("spanner", "wrench"),
    ("desk lamp", "table lamp"), ("office chair", "desk chair", "swivel chair"),
    *ROOMS,
)  # fmt: skip
#: Words that mean any of several labels, used only if the store does not have the word itself.
CATEGORIES = {
    "vehicle": (
        "car", "van", "truck", "bus", "tram", "trailer", "motorcycle", "motorbike", "lorry", "delivery van",
        "forklift", "scooter",
    ),
    "furniture": (
        "table", "dining table", "coffee table", "chair", "armchair", "sofa", "couch", "bed", "desk", "bench",
        "night stand", "cabinet", "shelf", "wardrobe", "bookcase", "stool", "drawer", "office chair",
        "conference table", "meeting table", "filing cabinet", "locker", "cupboard", "bookshelf", "workbench",
        "sideboard", "coat rack", "standing desk", "reception desk",
    ),
    "animal": ("dog", "cat", "bird", "horse", "rabbit"),
    "appliance": (
        "fridge", "freezer", "oven", "stove", "microwave", "dishwasher", "washing machine", "dryer", "kettle",
        "toaster", "coffee machine", "vacuum cleaner", "television", "tv", "fan", "heater", "iron",
        "water cooler",
    ),
    "seat": ("chair", "armchair", "sofa", "couch", "bench", "stool", "office chair"),
    "electronics": (
        "laptop", "computer", "phone", "tablet", "television", "tv", "remote control", "camera", "monitor",
        "printer", "projector", "scanner", "router", "headphones", "screen", "copier", "charger", "keyboard",
        "speaker", "server", "display", "power bank",
    ),
    "crockery": ("mug", "cup", "plate", "bowl", "glass"),
    "tool": (
        "hammer", "screwdriver", "drill", "saw", "spanner", "wrench", "pliers", "toolbox", "tape measure",
        "soldering iron", "soldering station", "multimeter", "angle grinder", "sander", "file", "chisel",
        "crowbar", "clamp", "vice", "jigsaw", "ladder", "stepladder", "cordless drill", "glue gun",
        "heat gun",
    ),
    "safety equipment": (
        "fire extinguisher", "first aid kit", "defibrillator", "hard hat", "helmet", "safety vest",
        "safety glasses", "safety goggles", "smoke detector", "fire blanket", "ear defenders", "fire alarm",
        "eyewash station", "gloves", "safety shoes", "emergency exit sign", "emergency kit",
    ),
    "stationery": (
        "pen", "pencil", "stapler", "notebook", "scissors", "hole punch", "marker", "ruler", "folder",
        "binder",
        "tape dispenser", "sticky notes", "calculator",
    ),
    "bag": ("backpack", "rucksack", "handbag", "suitcase", "laptop bag", "shopping bag", "briefcase"),
    "drinking vessel": (
        "mug", "cup", "glass", "bottle", "water bottle", "coffee mug", "coffee cup", "teacup", "tea cup",
    ),
    "reading matter": ("book", "magazine", "newspaper", "letter", "novel", "comic", "brochure", "manual"),
    "sleeping place": ("bed", "mattress", "hammock", "cot", "bunk"),
    "writing tool": ("pen", "pencil", "marker", "ballpoint pen", "crayon"),
    "cleaning tool": (
        "vacuum cleaner", "broom", "mop", "brush", "dustpan", "bucket", "mop bucket", "duster", "sponge",
    ),
    "climbing aid": ("ladder", "stepladder", "step stool", "stool"),
    "cooler": ("fridge", "freezer", "cool box", "vaccine fridge"),
    "cooking appliance": ("stove", "oven", "microwave", "hob", "hot plate", "kettle"),
    "container": ("box", "crate", "bin", "basket", "bucket", "barrel", "parcel", "package", "carton",
    "pallet"),
}  # fmt: skip
#: Labels that look like the plural of another word, and mean something else.
_NO_PLURALS = frozenset({"glasses"})
#: Words that the categories also go by.
_ALSO = {
    "piece of furniture": "furniture", "pieces of furniture": "furniture", "pet": "animal",
    "electronic device": "electronics", "electronic devices": "electronics", "device": "electronics",
    "devices": "electronics", "home appliance": "appliance", "household appliance": "appliance",
    "seating": "seat", "items of furniture": "furniture", "item of furniture": "furniture",
    "safety gear": "safety equipment", "safety kit": "safety equipment", "safety items": "safety equipment",
    "safety device": "safety equipment", "safety devices": "safety equipment",
    "emergency equipment": "safety equipment", "tools": "tool", "hand tools": "tool", "power tools": "tool",
    "office supplies": "stationery", "electronic equipment": "electronics", "electronic items": "electronics",
    "it equipment": "electronics", "gadgets": "electronics", "gadget": "electronics",
    "motor vehicle": "vehicle",
    "something to sit on": "seat", "place to sit": "seat", "kitchen appliance": "appliance",
    "electrical appliance": "appliance", "domestic appliance": "appliance", "luggage": "bag",
    "kitchen appliances": "appliance", "electrical appliances": "appliance",
}  # fmt: skip


#: Stems of all words above. They are no misspellings: *tablets* are not *tables*.
_WORDS = frozenset(stems(word) for group in (*SYNONYMS, *CATEGORIES.values()) for word in group)


def is_word(text: str) -> bool:
    """Return True for a word that has synonyms or a category, and so is no misspelling of another."""
    return stems(text) in _WORDS


class CorrectedQuery(NamedTuple):
    """A query with corrections.

    Attributes:
        query: with labels and words of the store.
        notes: the corrections in words.
    """

    query: Query
    notes: tuple[str, ...]


@cache
def _synonyms_by_stems() -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the groups of synonyms by the stems of their words; made once, because stems take time."""
    found: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for group in SYNONYMS:
        for root in dict.fromkeys(map(stems, group)):
            found.setdefault(root, []).append(group)
    return found


@cache
def _categories_by_stems() -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the members of each category by the stems of its name."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name, members in CATEGORIES.items():
        found.setdefault(stems(name), members)
    return found


class Labels:
    """Labels of a store with their counts, searchable by similar words."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts
        self._by_stems: dict[tuple[str, ...], list[str]] = {}
        self._joined: dict[str, str] = {}
        self._same: dict[str, list[str]] = {}
        for label in sorted(counts, key=lambda label: (-counts[label], label)):
            self._same.setdefault(normalize("NFC", label), []).append(label)
            root = stems(label)
            if root:
                self._by_stems.setdefault(root, []).append(label)
                self._joined.setdefault(" ".join(root), label)

    def alike(self, words: str) -> list[str]:
        """Return the labels that match except for case, accents and endings; the label itself if it exists.

        Labels that differ only in their Unicode normalization count as one.
        """
        return self._same.get(normalize("NFC", words)) or self._by_stems.get(stems(words), [])

    def synonym(self, words: str) -> str | None:
        """Return the label that means the same, or ``None``."""
        for group in _synonyms_by_stems().get(stems(words), ()):
            found = next((self.alike(word)[0] for word in group if self.alike(word)), None)
            if found is not None:
                return found
        return None

    def category(self, words: str) -> list[str]:
        """Return the labels of a category such as *vehicle*, or those that end in the words: *dining table*.

        Returns no labels for other words.
        """
        root = stems(_ALSO.get(words.lower(), words))
        members = _categories_by_stems().get(root, ())
        alike = (label for member in members for label in self.alike(member))
        found = [label for label in dict.fromkeys(alike) if label.lower() not in _NO_PLURALS]
        return found or self.heads(words)

    def heads(self, words: str) -> list[str]:
        """Return the labels that end in the words: *dining table* and *coffee table* for *tables*."""
        root = stems(words)
        longer = (each for each in self._by_stems if root and len(each) > len(root))
        return [label for each in longer if each[-len(root) :] == root for label in self._by_stems[each]]

    def nearest(self, words: str) -> str | None:
        """Return the label that is a synonym or differs by a misspelling, or ``None``.

        Misspellings are corrected only in scripts with upper case; in others, one different sign is another
        word.
        """
        same = self.synonym(words)
        if same is not None:
            return same
        joined = " ".join(stems(words))
        if not is_cased(joined) or is_word(words):
            return None
        entries = islice(self._joined.items(), MOST_LABELS)
        found = nearest(joined, ((root, self._counts[label]) for root, label in entries))
        return None if found is None else self._joined[found]


def read_query(
    query: Query, labels: Callable[[], Mapping[str, int]], corrections: Callable[[str], Mapping[str, str]]
) -> CorrectedQuery:
    """Replace unknown labels and words of a query by similar known ones.

    Args:
        query: the query.
        labels: returns the count of each label.
        corrections: returns a similar known word for each unknown word of a text.
    """
    notes: list[str] = []
    if query.where.labels is not None:
        known, wanted = Labels(labels()), []
        for at, label in enumerate(query.where.labels):
            near = known.nearest(label) if at < MOST_SLIPS and not known.alike(label) else None
            found = known.alike(label) or [near or label]
            wanted += found
            if found != [label]:
                notes.append(f"label {label!r} read as {' or '.join(map(repr, found))}")
        query = replace(query, where=replace(query.where, labels=list(dict.fromkeys(wanted))))
    if query.text is not None:
        better = corrections(query.text)
        if better:
            query = replace(query, text=" ".join(better.get(word, word) for word in query.text.split()))
            notes += [f"{word!r} read as {meant!r}" for word, meant in better.items()]
    return CorrectedQuery(query, tuple(notes))
