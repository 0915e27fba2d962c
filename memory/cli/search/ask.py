"""``recall ask``: answer a question in a sentence."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory.cli.change.add import read_vector
from memory.cli.console import UsageError, add_command, print_json, say, split_words
from memory.cli.filters import add_filter_options, between, filter_values
from memory.cli.search.looks import look_of_text, looks_of
from memory.exchange.times import parse_time
from memory.plain_values import to_plain
from memory.questions import Questions
from memory.questions.answers import Answer, Similar
from memory.questions.errors import QuestionError
from memory.questions.guarantee.answering import guarantee_of
from memory.questions.guarantee.conformal import Guarantee
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.reading.times import Span
from memory.questions.recognising import SeenBefore
from memory.questions.replying import Reply, ReplyOptions, answer_of, reply
from memory.questions.sentences import answer_sentence
from memory.questions.translation.model import MODEL_VARIABLE, URL_VARIABLE, Translation, Translator
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "ask", run, words="QUESTION")
    parser.epilog = _NAMED_QUESTIONS
    add_filter_options(parser)
    parser.add_argument("--embedding", metavar="FILE", help="vector in place of WHAT: .npy file or JSON list")
    parser.add_argument(
        "--like",
        metavar="ID|FILE",
        help="what 'this' means: a memory, or all objects in the last scan of a detections.jsonl (- for"
        " standard input)",
    )
    parser.add_argument(
        "--like-text",
        metavar="TEXT",
        help="for similar: images that match this text, compared by --encoder (default: class-names)",
    )
    parser.add_argument("--encoder", help="for similar: encoder whose vectors are compared")
    parser.add_argument("--since", metavar="TIME", help="for changed and summarise: start time")
    parser.add_argument(
        "--now",
        metavar="TIME",
        help="time that 'yesterday' and 'this morning' refer to; newest: time of the newest memory"
        " (default: the system clock)",
    )
    parser.add_argument(
        "--k", "-k", type=int, default=10, help="maximum number of memories in a list (default: 10)"
    )
    parser.add_argument(
        "--gap",
        type=float,
        default=60.0,
        metavar="S",
        help="pause that ends a visit, in seconds (default: 60)",
    )
    parser.add_argument(
        "--distance",
        type=float,
        metavar="M",
        help="for go-to: distance from the object, in metres (default: 1)",
    )
    parser.add_argument(
        "--coming-from", nargs="+", type=float, metavar="M", help="for go-to: x y of the robot, in metres"
    )
    parser.add_argument(
        "--llm",
        metavar="URL",
        help=f"chat endpoint of a model that translates refused questions (default: ${URL_VARIABLE})",
    )
    parser.add_argument(
        "--llm-model", metavar="NAME", help=f"name of that model (default: ${MODEL_VARIABLE})"
    )
    parser.add_argument(
        "--confidence",
        type=float,
        metavar="P",
        help="also answer yes, no or unknown with an error of at most 1 - P, such as 0.9; for 'is it still"
        " there?' and 'have I been here?'",
    )
    parser.add_argument(
        "--pose",
        nargs=3,
        type=float,
        metavar=("X", "Y", "YAW"),
        help="pose of the robot in metres and radians, for 'near me' and 'left of the table'",
    )


def run(options: argparse.Namespace) -> int:
    """Print the answer. The exit status is 0 even if nothing is known."""
    folder, words = split_words(options, least=1, most=None)
    named = words[0] in _ASKED and len(words) <= 2 and (len(words) == 1 or words[0] in _ABOUT_SOMETHING)
    if options.like_text is not None and (options.like is not None or options.embedding is not None):
        raise UsageError("--like-text, --like and --embedding exclude each other. Give one of them")
    if options.like is not None and not options.like.isdecimal():
        return _ask_of_scan(folder, words, options)
    if options.like is not None:
        if (named and words[0] not in _ABOUT_NEWEST) or (len(words) > 1 and named):
            raise UsageError("--like ID works with similar, seen-before and been-here, in place of their ID")
        words = [*words, options.like] if named else words
    for name in _unused(words[0] if named else "", options):
        raise UsageError(
            f"{words[0] if named else 'a question in words'} does not accept --{name}. Remove it"
        )
    what = _what(words, options) if named else None
    encoder = options.encoder or "default"
    if options.like_text is not None:
        if what is not None:
            raise UsageError("an ID and --like-text exclude each other. Give one of them")
        encoder, what = look_of_text(options.like_text, options.encoder)
    with MemoryStore.open(folder, readonly=True) as store:
        questions, more = Questions(store, encoder=encoder), _reply_options(options)
        if named:
            named_question = _parse(words[0], what, options)
            answer = answer_of(questions, named_question, more)
            if options.like_text is not None and isinstance(answer, Similar):
                answer = replace(answer, what=repr(options.like_text))
            sentence = answer_sentence(questions, named_question, answer)
        else:
            translation, found = _answered(questions, " ".join(words), options, more)
            sentence, answer = found.sentence, found.answer
            if translation is not None:
                read = json.dumps(translation.query)
                sentence = f"{sentence} (The model {translation.model} read the question as {read}.)"
        guaranteed = _guaranteed(store, answer, options, encoder)
    if guaranteed is not None:
        sentence = f"{sentence} {guaranteed}"
    if options.json:
        more_json = {} if guaranteed is None else {"guarantee": to_plain(guaranteed)}
        print_json({**({} if named else {"sentence": sentence}), **answer.to_json(), **more_json})
    else:
        say(sentence)
    return 0


def _guaranteed(
    store: MemoryStore, answer: Answer, options: argparse.Namespace, encoder: str
) -> Guarantee | None:
    """Return the guarantee of an answer, if one is asked for."""
    if options.confidence is None:
        return None
    now_ns = _now(store, options.now)
    return guarantee_of(store, answer, options.confidence, now_ns=now_ns, encoder=encoder)


def _answered(
    questions: Questions, text: str, options: argparse.Namespace, more: ReplyOptions
) -> tuple[Translation | None, Reply]:
    """Answer a question in words; a model, if given, translates what the grammar refuses."""
    now = _now(questions.store, options.now)
    translator = Translator.of_environment(options.llm, options.llm_model)
    try:
        found = reply(questions, _about(questions.understand(text, now), options), more)
    except QuestionError as refusal:
        if translator is None:
            raise
        try:
            return _translated(translator, questions, text, options, more)
        except QuestionError as error:
            raise QuestionError(refusal.part, f"{refusal} ({error}.)") from error
    known = not isinstance(found.parsed.what, str) or questions.knows(found.parsed.what)
    if translator is None or known:
        return None, found
    try:
        return _translated(translator, questions, text, options, more)
    except QuestionError:
        return None, found


def _translated(
    translator: Translator, questions: Questions, text: str, options: argparse.Namespace, more: ReplyOptions
) -> tuple[Translation, Reply]:
    translation = translator.translate(text, questions, _now(questions.store, options.now))
    return translation, reply(questions, _about(translation.asked, options), more)


def _ask_of_scan(folder: Path | str, words: list[str], options: argparse.Namespace) -> int:
    """Ask a question about each object in the last scan of a file."""
    named = words[0] in _ABOUT_NEWEST and len(words) == 1
    answers: list[tuple[Answer, Guarantee | None]] = []
    with MemoryStore.open(folder, readonly=True) as store:
        question = (
            _ASKED[words[0]]
            if named
            else Questions(store).understand(" ".join(words), _now(store, options.now)).question
        )
        if question not in (_ASKED[name] for name in _ABOUT_NEWEST):
            raise UsageError("--like FILE needs a question about 'this', such as 'have I seen this before?'")
        for look in looks_of(options.like, "place" if question == "been_here" else "object"):
            encoder, vector = next(iter(look.embeddings.items()), ("default", look.embedding))
            asked = ParsedQuestion(question, what=vector, map_id=options.map)
            found = answer_of(Questions(store, encoder=encoder), asked, _reply_options(options))
            if isinstance(found, SeenBefore | Similar):
                answer = replace(found, what=f"what looks like this ({look.caption})")
                answers.append((answer, _guaranteed(store, answer, options, encoder)))
    if options.json:
        plain = [
            answer.to_json() | ({} if guaranteed is None else {"guarantee": to_plain(guaranteed)})
            for answer, guaranteed in answers
        ]
        print_json({"answers": plain})
    else:
        say("\n".join(f"{a} {b}" if b is not None else str(a) for a, b in answers))
    return 0


def _about(asked: ParsedQuestion, options: argparse.Namespace) -> ParsedQuestion:
    """Add the options ``--map`` and ``--like`` to a question in words."""
    if options.like is not None:
        if asked.question not in (_ASKED[name] for name in _ABOUT_NEWEST) or asked.what is not None:
            raise UsageError("--like ID needs a question about 'this', such as 'have I seen this before?'")
        asked = replace(asked, what=int(options.like))
    return replace(asked, map_id=asked.map_id or options.map)


def _now(store: MemoryStore, option: str | None) -> int:
    """Return the time that ``--now`` means, in nanoseconds."""
    if option == "newest":
        return store.newest_ns
    return time.time_ns() if option is None else parse_time(option)


def _reply_options(options: argparse.Namespace) -> ReplyOptions:
    return ReplyOptions(
        labels=options.label,
        kinds=options.kind,
        polygon=filter_values(options)["polygon"],
        states=options.state,
        k=options.k,
        gap_s=options.gap,
        distance_m=1.0 if options.distance is None else options.distance,
        coming_from=None if options.coming_from is None else tuple(options.coming_from),
        pose=None if options.pose is None else tuple(options.pose),
        area=options.area,
    )


def _parse(question: str, what: Any, options: argparse.Namespace) -> ParsedQuestion:
    """Return the question that a name and options ask."""
    for needed in _NEEDS.get(question, ()):
        if getattr(options, needed) is None:
            raise UsageError(f"{question} needs {_USAGE[question]}")
    if question in _ABOUT_NEWEST and isinstance(what, str):
        raise UsageError(f"{question} needs the id of a memory or --embedding. recall query lists ids")
    span = between(options.between)
    return ParsedQuestion(
        _ASKED[question],
        what=options.text if question == "between" else what,
        near=None if options.near is None else tuple(options.near),
        radius_m=options.radius,
        between=None if span is None else Span(*span),
        since=None if options.since is None else parse_time(options.since),
        map_id=options.map,
        area=options.area,
    )


def _what(words: list[str], options: argparse.Namespace) -> Any:
    question, rest = words[0], words[1:]
    if options.embedding is not None:
        if rest:
            raise UsageError("WHAT and --embedding exclude each other. Give one of them")
        return read_vector(options.embedding)
    if question in _ABOUT_SOMETHING and not rest and question not in ("how-many", *_ABOUT_NEWEST):
        raise UsageError(
            f"{question} needs a label, words or an id, such as: recall ask STORE {question} car"
        )
    return (int(rest[0]) if rest[0].isdecimal() else rest[0]) if rest else None


def _unused(question: str, options: argparse.Namespace) -> list[str]:
    """Return the given options that the question does not use."""
    usual = {"k": 10, "gap": 60.0, "min_confidence": 0.0}
    every = {name for names in _TAKES.values() for name in names} | {"min_confidence", "embedding", "moving"}
    useful = {"map", *_TAKES.get(question, ()), *(("embedding",) if question in _ABOUT_SOMETHING else ())}
    given = (name for name in every - useful if getattr(options, name) != usual.get(name))
    return sorted(name.replace("_", "-") for name in given)


_NAMED_QUESTIONS = (
    "Questions also have names, for scripts: last-seen WHAT; first-seen WHAT; still-there WHAT;"
    " how-often WHAT; how-many WHAT; go-to WHAT; near --near X Y --radius M; between --between FROM TO;"
    " changed --since TIME; summarise; similar [ID]; seen-before [ID]; been-here [ID]. WHAT is a label, words"
    " or the id of a memory. Without ID, the newest memory that has a vector is meant."
)
#: Names of questions on the command line.
_ASKED = {
    "last-seen": "last_seen",
    "first-seen": "first_seen",
    "near": "near",
    "between": "between",
    "changed": "changed_since",
    "how-often": "how_often",
    "how-many": "how_many",
    "left": "left",
    "still-there": "still_there",
    "summarise": "summarise",
    "similar": "similar_situations",
    "seen-before": "seen_before",
    "been-here": "been_here",
    "go-to": "pose_to",
}
_NEEDS = {"near": ("near", "radius"), "between": ("between",), "changed": ("since",)}
_USAGE = {"near": "--near and --radius", "between": "--between FROM TO", "changed": "--since"}
#: Options of each question in addition to --map. --embedding is checked with WHAT.
_TAKES = {
    "": (
        "now",
        "confidence",
        "label",
        "kind",
        "state",
        "k",
        "gap",
        "distance",
        "coming_from",
        "area",
        "pose",
    ),
    "near": ("near", "radius", "area", "label", "kind", "state", "k"),
    "between": ("between", "near", "radius", "area", "label", "kind", "state", "text", "k"),
    "changed": ("since", "near", "radius", "area"),
    "how-often": ("between", "gap", "area"),
    "how-many": ("between", "near", "radius", "area"),
    "summarise": ("since", "near", "radius", "polygon", "area"),
    "similar": ("kind", "state", "k", "like_text", "encoder"),
    "seen-before": ("kind", "k", "gap"),
    "been-here": ("k", "gap", "confidence", "now"),
    "still-there": ("confidence", "now"),
    "go-to": ("distance", "coming_from"),
}
#: Questions about a memory. Without an id they are about the newest memory that has a vector.
_ABOUT_NEWEST = ("similar", "seen-before", "been-here")
_ABOUT_SOMETHING = (
    "last-seen", "first-seen", "how-often", "how-many", "still-there", "go-to", *_ABOUT_NEWEST,
)  # fmt: skip
