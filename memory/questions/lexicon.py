"""Function words of questions, by class. All other words are content: names of objects and places."""

from __future__ import annotations

from collections.abc import Mapping

#: Words and fixed phrases of each class. Of several phrases that begin at a word the longest counts.
_CLASSES: Mapping[str, str] = {
    "WHERE": """
        where, wheres, whereabouts, which room, in which room, what room, in what room, which map
    """,
    "WHEN": """
        when, what time, at what time, how long ago, which day, on which day, what day, on what day,
        what date, which date
    """,
    "SINCE": "since when",
    "WHAT": "what, whats",
    "WHICH": "which",
    "WHO": "who, whom, whose",
    "WHY": "why",
    "HOW": "how",
    "COUNT": "how many, how much, number of, total number of, count of, amount of, count, number",
    "OFTEN": "how often, how many times, how frequently, frequency of, visits of",
    "LONG": "how long, how much time",
    "FAR": "how far, distance, far apart",
    "BE": "am, is, are, was, were, be, been, being",
    "HAVE": "has, have, had",
    "DO": "do, does, did",
    "MODAL": "can, could, would, may, might, must",
    "ADVICE": "should, shall, ought to",
    "FUTURE": "will, wont, going to, tomorrow, next week, next month, next year, next time",
    "SEE": """
        see, sees, seen, saw, notice, noticed, observe, observed, detect, detected, meet, met, spot,
        spotted, encounter, encountered, remember, remembered, sight, sighted, visible, in view,
        perceive, perceived, recorded, stored, seeing, pass by, passed by, come across, came across,
        look at, looked at, known, found, sighting, sightings, sighting of, sight of
    """,
    "KNOW": "know, know of, know about, recognise, recognize, recall, familiar with, familiar",
    "STAY": """
        park, parked, standing, stands, stand, stood, lying, lies, lie, sitting, sits, sit, located,
        placed, kept, put, stay, staying, stays, hanging, hung, stored away, hiding, hidden, resting,
        sleeping
    """,
    "LEFT": "left, leave, leaving",
    "MOVE": """
        moved, move, moves, taken, take, took, take away, removed, remove, disappeared, disappear,
        vanished, vanish, gone, missing, away, lost, left behind, gone missing, go missing, went, went
        missing, went away, moved away, driven off, drove off, driven away, drove away, stolen, picked
        up, pick up, collected
    """,
    "CHANGE": "changed, change, changes, new, different, difference, the difference",
    "APPEAR": """
        appear, appeared, arrive, arrived, come, came, show up, showed up, shown up, turn up, turned up
    """,
    "HAPPEN": "happen, happened, happens, happening, went on, going on, take place, took place",
    "SHOW": """
        show, list, search, search for, give, display, tell, tell about, give details of, details of
    """,
    "FIND": "can not find, cannot find, find, need, want, locate, look for, looking for",
    "GO": """
        go to, drive to, navigate to, head to, move to, bring to, take to, guide to, lead to, get to,
        travel to, come to, take me to, bring me to, guide me to, lead me to, go, drive, navigate, get
        me to, the way to, way to, path to, route to, directions to, direction to, pose to, the route
        to, the path to, go towards
    """,
    "DESCRIBE": "describe, summarise, summarize, summary of, summary, overview of, overview",
    "SIMILAR": """
        similar to, similar, alike, like, looks like, look like, resembles, resemble, most similar to,
        most similar
    """,
    "NEAREST": "nearest, closest, nearest to, closest to, nearest from, closest from",
    "STILL": "still",
    "FIRST": "first, for the first time, the first time, first time, earliest",
    "LAST": """
        last, latest, newest, most recent, most recently, the last time, last time, recent, the most
        recent, for the last time
    """,
    "EVER": "ever, already, yet, before, earlier, previously, in the past",
    "NOW": "now, right now, currently, at the moment, at present, these days",
    "THERE": """
        there, here and there, present, in place, in the memory, in your memory, in memory, in the
        store, in your store, anywhere, somewhere, exist, exists, around
    """,
    "HERE": """
        here, around here, in here, nearby, this place, that place, this spot, this location, this area,
        this street, this room, this corner
    """,
    "THIS": "this, that, it, these, those, them, this one, that one, this thing, this object",
    "ANYTHING": """
        anything, something, everything, thing, things, object, objects, stuff, memories, memory,
        labels, classes, situation, situations, observation, observations, it all, event, events, item,
        items, all memories, anything else, something else, everything else
    """,
    "PERSON": "i, you, we, me, us, the robot, robot, they",
    "ANYONE": "anyone, anybody, someone, somebody",
    "DET": """
        the, a, an, my, your, our, his, her, their, its, some, teh, other, distinct, another, one of,
        some of
    """,
    "ALL": "all, every, each, all of, all the, any of the, each of",
    "ANY": "any, any of",
    "POSITION": """
        last place, last position, position of, location of, place of, pose of, coordinates of,
        whereabouts of, spot of, position, location, coordinates, current position of, last known
        position of, last known location of, last position of, last location of, current location of,
        latest position of
    """,
    "OF": "of, about, for, with",
    "TO": "to, from",
    "IN": "in, inside, within",
    "NEAR": """
        near, close to, next to, beside, besides, around the, by, at, on, alongside, along, adjacent to,
        in the vicinity of, nearby to, on top of, around
    """,
    "SIDE": """
        left of, right of, to the left of, to the right of, on the left, on the right, behind, beyond,
        in front of, ahead of, above, below, under, underneath, beneath, opposite, across from, across,
        facing, between, away from, far from, at the back of, in back of, north of, south of, east of,
        west of, on the left of, on the right of, to the side of
    """,
    "AND": "and, or, then, plus, as well as, versus, vs",
    "NOT": "not, no, without, except, unless, other than, but, none, never, neither, nor",
    "COMPARE": """
        more, fewer, less, most, than, more often, bigger, larger, older, newer, closer, farther,
        further
    """,
    "ATTRIBUTE": """
        color, colour, size, weight, owner, brand, make, price, age, material, shape, temperature,
        height, width, length, speed, belong, belongs, made of, fast, big, tall, heavy, old, heading,
        direction, license plate, licence plate, mood, smell, taste, value, cost
    """,
    "FILLER": """
        hey, hi, hello, remind, any idea, any ideas, happen to, i wonder, wondering, would like, ok,
        okay, well, please, thanks, thank you, exactly, just, really, actually, else, that, than, again,
        so, so far, at all, in total, altogether, total, up, me, out, too, also, currently there, right,
        kind of, kinds of, sort of, types of, type of, a lot of, as
    """,
}


def _table() -> dict[tuple[str, ...], str]:
    table: dict[tuple[str, ...], str] = {}
    for name, phrases in _CLASSES.items():
        for phrase in phrases.split(","):
            table.setdefault(tuple(phrase.split()), name)
    return table


#: Class of each phrase, by its words.
PHRASES = _table()
#: Words of the longest phrase.
LONGEST = max(map(len, PHRASES))
