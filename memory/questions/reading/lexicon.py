"""Function words of questions, by class. All other words are content: names of objects and places."""

from __future__ import annotations

from collections.abc import Mapping

from memory.terms import fold

#: Words and fixed phrases of each class. Of several phrases that begin at a word the longest counts.
_CLASSES: Mapping[str, str] = {
    "WHERE": """
        where, wheres, whereabouts, which room, in which room, what room, in what room, which map, which
        area, in which area, what area, which place, in which place, which part, in which part, at which
        place, in which map, in what map, what map, which city, in which city, which town, in which town,
        which site, at which site, which drive, in which drive, on which drive, which recording, in which
        recording
    """,
    "WHEN": """
        what hour, at what hour, at which time, which time, which hour, when, what time, at what time, how
        long ago, which day, on which day, what day, on what day, what date, which date, when was the last
        time, how many seconds ago, how many minutes ago, how many hours ago, how many days ago, how many
        weeks ago, how long has it been since, how long is it since, how much time has passed since
    """,
    "SINCE": "since when",
    "WHAT": "what, whats, what other",
    "WHICH": "which, which other",
    "WHO": "who, whom, whose",
    "WHY": "why",
    "HOW": "how",
    "COUNT": """
        detection count for, detection count of, detection count, how many, how much, number of, total number
        of, count of, amount of, count, number
    """,
    "OFTEN": """
        how often, how many times, how frequently, frequency of, visits of, on how many days, on how many
        different days, on which days, which days, on what days, what days, on which dates, which dates
    """,
    "LONG": """
        since how many days, since how long, how long, how much time, for how long, how many seconds, how
        many minutes, how many hours, how many days, how many weeks, for how many seconds, for how many
        minutes, for how many hours, for how many days, for how many weeks
    """,
    "FAR": """
        how far, how far away, how far apart, distance, the distance, distance between, distance from, how
        close, how near, how many metres, how many meters, how many metres away, how many meters away, far
        apart
    """,
    "BE": "am, is, are, was, were, be, been, being, r",
    "HAVE": "has, have, had, contain, contains, contained, hold, holds, own, owns, possess",
    "DO": "do, does, did",
    "MODAL": "can, could, would, may, might, must",
    "ADVICE": "should, shall, ought to",
    "FUTURE": "will, wont, going to, tomorrow, next week, next month, next year, next time",
    "SEE": """
        watch, watched, watching, check, checked, check on, checked on, inspect, inspected, patrol, patrolled,
        look in on, counted,
        crossed your path, cross your path, crossed my path, see, sees, seen, saw, notice, noticed, observe,
        observed, detect, detected, meet, met, spot, spotted, encounter, encountered, remember, remembered,
        sight, sighted, visible, in view, perceive, perceived, recorded, stored, seeing, pass by, passed by,
        come across, came across, look at, looked at, known, found, sighting, sightings, sighting of, sight
        of, pass, passed, pass through, passed through, drive past, drive through, drove through, run into,
        ran into, bump into, bumped into, come by, cross paths with, be seen, visit, visited, been to, walk
        past, walked past, walk by, walked by, go past, went past, come past
    """,
    "KNOW": "know, know of, know about, recognise, recognize, recall, familiar with, familiar",
    "STAY": """
        got to, ended up, gone off to, park, parked, standing, stands, stand, stood, lying, lies, lie,
        sitting, sits, sit, sat, rest, rests, rested, located, placed, keep, kept, put, stay,
        leave lying, staying, stays, hanging,
        hung, hangs, mounted, fixed, stored away, hiding, hidden, resting, sleeping, waiting, end up, ends up,
        wind up, wound up, go off to, went off to, wandered off to, wander off to, run off to, ran off to,
        curled up, curl up, curled, snuggled up, perched, propped up, propped, tucked away, tucked, wedged,
        dumped, strewn, scattered, plonked, stashed away, stashed, stowed away, stowed, sprawled, snoozing,
        napping, dozing, leaning, leaned, leant, lurking, loitering, situated, positioned, installed, docked,
        stacked, piled up, piled, stuck, attached, laid, lain, put away, put down, set down, left lying, lying
        around, lying about, laying around, lying here, sitting around, sitting about, standing around,
        standing about, hanging around, hanging about, hanging up, kicking about, knocking about, knocking
        around, floating around, keeping, housed, kept locked
    """,
    "LEFT": "left, leave, leaving",
    "MOVE": """
        marked gone, marked moved, marked as gone, marked as moved, missing from, disappeared from, gone from,
        vanished from, removed from, taken from, moved, move, moves, taken, take, took, take away, removed,
        remove, disappeared, disappear, vanished, vanish, gone, missing, away, lost, left behind, gone
        missing, go missing, went, went missing, went away, moved away, drive away, drive off, walk away,
        walked away, ran away, driven off, drove off, driven away, drove away, stolen, picked up, pick up,
        collected
    """,
    "CHANGE": "changed, change, changes, new, different, difference, the difference",
    "APPEAR": """
        created, registered, added, appear, appeared, arrive, arrived, get here, got here, get there,
        delivered, brought, come, came, show up, showed up, shown up, turn up, turned up
    """,
    "HAPPEN": """
        go off, goes off, went off, going off, gone off, ring, rang, rung, happen, happened, happens,
        happening, went on, going on, take place, took place
    """,
    "SHOW": """
        enumerate, identify, specify, indicate, point out, report, print, output, return, show, list, search,
        search for, give, display, tell, tell about, give details of, details of, name the, name all, name
        every
    """,
    "FIND": "can not find, cannot find, find, need, want, locate, look for, looking for",
    "GO": """
        go to, drive to, navigate to, head to, move to, bring to, take to, guide to, lead to, get to, travel
        to, come to, take me to, bring me to, guide me to, lead me to, go, drive, navigate, get me to, the
        way to, way to, path to, route to, directions to, direction to, pose to, the route to, the path to,
        go towards
    """,
    "DESCRIBE": """
        describe, description of, short description of, brief description of, a description of, summarise,
        summarize, summary of, summary, overview of, overview
    """,
    "SIMILAR": """
        similar to, similar, alike, like, looks like, look like, resembles, resemble, most similar to, most
        similar
    """,
    "NEAREST": """
        nearest, closest, nearest one to, closest one to, nearest to, closest to, nearest from, closest from,
        farthest, furthest, most distant, farthest from, furthest from, most distant from, farthest away,
        furthest away, farthest away from, furthest away from, farthest one from, furthest one from
    """,
    "SUPERLATIVE": """
        how big, how large, how tall, how high, how wide, how high up, how high off the ground, how high off
        the floor, how high above the ground, how high above the floor, biggest, largest, bulkiest, hugest,
        smallest, tiniest, longest, tallest, widest, narrowest, highest, lowest, fastest, slowest, oldest,
        newest, most often, most frequently, the most often, the most frequently, least often, least
        frequently, the least often, the least frequently, least recently, most times, the most times, fewest
        times, the fewest times, for the longest time, longest ago, the longest ago, the longest time ago, for
        the longest, in the longest time, the longest time, longest time, for the shortest time, the shortest
        time, shortest time, at what height, at which height
    """,
    "UNSEEN": """
        unseen, unvisited, unobserved, undetected, gone unseen, been unseen, gone unvisited, gone unnoticed,
        gone undetected
    """,
    "EMPTIEST": """
        emptiest, fullest, the emptiest, the fullest, most crowded, least crowded, the most crowded, the least
        crowded
    """,
    "DESCRIBED": "described as, described with, captioned as, captioned, whose caption says",
    "CARRYING": "carrying, supporting",
    "STILL": "status of, state of, still",
    "FIRST": """
        first, for the first time, the first time, first time, earliest, very first, for the very first time,
        the very first time, very first time
    """,
    "LAST": """
        last, latest, most recent, most recently, the last time, last time, recent, the most recent, the most
        recent time, for the last time
    """,
    "EVER": "ever, already, yet, before, earlier, previously, in the past",
    "NOW": "now, right now, rn, currently, at the moment, at present, these days",
    "THERE": """
        there, here and there, present, marked present, marked as present, in place, in the memory, in your
        memory, in memory, in the store, in your store, anywhere, somewhere, exist, exists, around
    """,
    "HERE": """
        here, around here, in here, nearby, this place, that place, this spot, this location, this area, this
        street, this room, this corner
    """,
    "THIS": "this, that, it, these, those, them, this one, that one, this thing, this object",
    "ANYTHING": """
        detection, detections, anything, something, everything, thing, things, object, objects, stuff,
        memories, memory, labels, classes, situation, situations, observation, observations, it all, event,
        events, item, items, piece, pieces, entry, entries, record, records, entity, entities, all memories,
        anything else, something else, everything else, other things, other objects, other items
    """,
    "PERSON": "he, she, i, you, we, me, us, the robot, robot, they, u, ya",
    "ANYONE": "anyone, anybody, someone, somebody",
    "DET": """
        asset, of class, for class, called, named, labelled, labeled, the, a, an, my, ur, your, our, his,
        her, their, its, some, teh, distinct, another, one of, some of
    """,
    "ALL": "both, both of, all, every, each, all of, all the, any of the, each of",
    "ANY": "any, any of, any other",
    "POSITION": """
        last place, last position, position of, location of, place of, pose of, coordinates of, whereabouts
        of, spot of, position, location, coordinates, current position of, last known position of, last known
        location of, last position of, last location of, current location of, latest position of
    """,
    "OF": "of, about, for, with",
    "TO": "to, from",
    "IN": "in, inside, within, inside of, into",
    "ON": "on, on top of, on the top of, atop, onto",
    "NEXT": "next to, beside, adjacent to, alongside, right next to, against, leaning against",
    "BETWEEN": "between, in between",
    "SIDE_LEFT": "left of, to the left of, on the left of, on the left side of",
    "SIDE_RIGHT": "right of, to the right of, on the right of, on the right side of",
    "SIDE_FRONT": "in front of, ahead of",
    "SIDE_BACK": "behind, in back of, at the back of, beyond",
    "NEAR": "near, close to, around the, by, at, along, round the, in the vicinity of, nearby to, around",
    "UNDER": "under, underneath, beneath, below, right under, directly under, directly below",
    "ABOVE": "above, right above, directly above",
    "SIDE": """
        on the left, on the right, opposite, across from, across, facing, away from, far from, north of,
        south of, east of, west of, to the side of
    """,
    "AND": "and, or, then, plus, as well as, versus, vs",
    "NOT": """
        not, no, no longer, but not, excluding, without, except, except for, besides, unless, other
        than, apart from, aside from, but, none, never, neither, nor, only, nothing, nobody, no one,
        nowhere
    """,
    "MORE": "more, fewer, less, as many, the same number of, same number of",
    "QUANTITY": "at least, at most, more than, fewer than, less than, no more than, not more than",
    "MOST": "most, the most, most of the, fewest, the fewest, least, the least",
    "CLOSER": """
        closer, nearer, farther, further, closer to, nearer to, farther from, further from, farther away
    """,
    "COMPARE": """
        bigger, larger, smaller, taller, longer, wider, narrower, higher, lower, faster, slower, older,
        newer, more often, less often, more frequently, less frequently
    """,
    "RECENT": "more recently, less recently, later, sooner",
    "THAN": "than",
    "ATTRIBUTE": """
        color, colour, size, weight, owner, brand, make, price, age, material, shape, temperature, height,
        width, length, speed, belong, belongs, made of, weigh, weighs, fast, big, tall, heavy, old, heading,
        direction, license plate, licence plate, mood, smell, taste, value, cost
    """,
    "QUALITY": """
        moving, standing still, stood still, stand still, stands still, open, closed, shut, locked, clean,
        dirty, full, empty, broken, wet, dry, hot, warm, cold, soft, hard, loud, quiet, dark, bright,
        comfortable, cute, nice, beautiful, ugly, safe, dangerous, expensive, cheap, asleep, awake, alive,
        dead, hungry, happy, sad, tired, friendly, real, turned on, turned off, switched on, switched off,
        plugged in
    """,
    "ACT": """
        looking at, walk, walked, walking, run, running, ride, rode, riding, turn, turned, wait, waited,
        sleep, slept, eating, drink, drank, wear, bring, fetch, carry, hand, grab, delete, forget,
        erase, turn on, turn off, switch on, switch off, use, used, using, opened, close the, eat, ate, cook,
        cooked, swallow, swallowed, wash, washed, buy, bought, break, broke, throw, threw, drop, dropped,
        charge, charged, feed, fed, wear, wore, read, wrote, say, said, talk, talked
    """,
    "FOREIGN": """
        wo, wann, wie, wieviel, wieviele, warum, wer, ist, sind, gibt, zeig, zeige, welche, welcher, welches,
        seit, gestern, meine, meinen, das, où, quand, combien, est, sont, quel, quelle, quels, quelles,
        depuis, hier, dans, a-t-il, est-ce, qu'est-ce, dónde, cuándo, cuántos, cuántas, cuál, qué, está,
        están, desde, ayer, dove, dov'è, quanti, quante, quali, ieri, onde, quantos, quantas, ontem, waar,
        wanneer, hoeveel, welke, zijn, gisteren, hvor, hvad, gdzie, jest, kolik, nerede
    """,
    "CLAUSE": """
        while, after, until, till, since, during, as soon as, whenever, now that, given that, considering that
    """,
    "FILLER": """
        maybe, perhaps, probably, possibly, anymore, any more, any longer, either, centre-to-centre,
        center-to-center, straight-line, in the whole house, in the whole flat, in the entire house, one, is
        it true that, is it correct that, check whether, check if, confirm that, confirm, see whether, see if,
        find out whether, verify that, verify whether, hey, hi, hello, remind, any idea, any ideas, happen to,
        i wonder, wondering, would like, ok, okay, well, please, thanks, thank you, exactly, just, really,
        actually, pls, plz, thx, else, that, again, so, so far, at all, in total, altogether, total, up, me,
        out, too, also, currently there, right, kind of, kinds of, to the flat, to the house, sort of, types
        of, type of, piece of, pieces of, item of, items of, article of, articles of, bit of, a lot of, as,
        place where, spot where, the place where, the spot where, there is, in the house, in the flat, at
        home, in our home, in the home, in my home, in town, in the town, on the road, on the street, along
        the road, along the street, together, overall, hello robot, on record, on the record, you know of, you
        know about, stored in memory, you have stored, itself
    """,
}
#: Words for objects, not for all memories.
THINGS = (
    "thing", "things", "object", "objects", "item", "items", "entity", "entities", "entry", "entries",
    "record", "records",
)  # fmt: skip
#: Nouns for everything that the store remembers, unless an area has the name.
WHOLE_PLACES = (
    "flat", "house", "home", "apartment", "dwelling", "household", "building", "office", "premises",
    "property", "site", "place", "facility",
)  # fmt: skip
_WHOLE_STARTS = tuple(
    f"{preposition} {determiner}"
    for preposition in ("in", "around", "about", "inside", "within", "across", "throughout", "on")
    for determiner in ("the", "this", "our", "my", "the whole", "the entire", "this whole")
)


#: Persons that a determiner may stand before. A name and *grandma* have none.
PERSONS = frozenset({
    "aunt", "aunty", "baby", "babies", "babysitter", "boss", "boy", "boys", "boyfriend", "brother",
    "brothers", "child", "children", "cleaner", "client", "colleague", "colleagues", "cousin", "cousins",
    "dad", "daddy", "daughter", "daughters", "doctor", "father", "flatmate", "friend", "friends",
    "gardener", "girl", "girlfriend", "girls", "grandad", "granddad", "granddaughter", "grandfather",
    "grandma", "grandmother", "grandpa", "grandparents", "grandson", "granny", "guest", "guests", "guy",
    "husband", "kid", "kids", "lady", "landlady", "landlord", "man", "men", "mom", "mother", "mum",
    "mummy", "nanny", "neighbor", "neighbors", "neighbour", "neighbours", "nephew", "niece", "nurse",
    "parents", "partner", "people", "person", "postman", "roommate", "roommates", "sister", "sisters",
    "son", "sons", "spouse", "student", "students", "teacher", "teenager", "tenant", "toddler", "twins",
    "uncle", "visitor", "visitors", "wife", "woman", "women",
})  # fmt: skip
#: Numbers that may stand before an object.
NUMBERS = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
#: Words before a superlative, and the place that each means.
ORDINALS: Mapping[str, int] = {"second": 2, "third": 3, "fourth": 4, "2nd": 2, "3rd": 3, "4th": 4}
#: Classes of superlatives.
SUPERLATIVES = ("NEAREST", "SUPERLATIVE")


def _table() -> dict[tuple[str, ...], str]:
    table: dict[tuple[str, ...], str] = {}
    for name, phrases in _CLASSES.items():
        for phrase in phrases.split(","):
            words = tuple(fold(phrase).split())
            table.setdefault(words, name)
            if name in SUPERLATIVES:
                table |= {(ordinal, *words): name for ordinal in ORDINALS}
    for start in _WHOLE_STARTS:
        table |= {(*start.split(), noun): "FILLER" for noun in WHOLE_PLACES}
    return table


#: Class of each phrase, by its words.
PHRASES = _table()
#: Words of the longest phrase.
LONGEST = max(map(len, PHRASES))
