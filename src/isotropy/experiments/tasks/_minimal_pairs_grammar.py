"""Phenomena of English, each a rule that makes an acceptable sentence and one that is not.

The two differ in one word or in the order of the same words, and what is wrong in one pair is right
in another: whatever word stands in an acceptable sentence stands about as often in one that is not.
So the words of a sentence by themselves, or its length, say nothing about it.
"""

from collections.abc import Callable
from typing import NamedTuple

from isotropy.experiments.tasks._minimal_pairs_words import Draw, Noun, Verb

Pair = tuple[str, str]
"""An acceptable sentence and one that is not, without capital and full stop."""
Rule = Callable[[Draw, int], Pair]
"""Makes the pair of a number; numbers go through the rule's variants in turn."""


class Phenomenon(NamedTuple):
    """A rule and its name."""

    name: str
    rule: Rule


_NEAR = ("near", "behind", "beside")


def _swapped(frame: str, right: str, wrong: str) -> Pair:
    return frame.replace("_", right), frame.replace("_", wrong)


def _number(noun: Noun, many: bool) -> str:
    return noun.many if many else noun.one


def _present(verb: Verb, many: bool) -> tuple[str, str]:
    """The form that agrees, and the one that does not."""
    return (verb.base, verb.s) if many else (verb.s, verb.base)


def _agreement(draw: Draw, i: int) -> Pair:
    many = bool(i % 2)
    subject = _number(draw.one(draw.words.people), many)
    return _swapped(
        f"the {subject} _ in the {draw.one(draw.words.places)}",
        *_present(draw.one(draw.words.acts), many),
    )


def _agreement_attractor(draw: Draw, i: int) -> Pair:
    many = bool(i % 2)
    subject, other = draw.two(draw.words.people)
    start = f"the {_number(subject, many)} {draw.one(_NEAR)} the {_number(other, not many)}"
    if i // 2 % 2:
        return _swapped(f"{start} _", *_present(draw.one(draw.words.acts), many))
    one, more = (("is", "are"), ("was", "were"))[i // 4 % 2]
    forms = (more, one) if many else (one, more)
    return _swapped(f"{start} _ {draw.one(draw.words.states)}", *forms)


def _agreement_relative(draw: Draw, i: int) -> Pair:
    many = bool(i % 2)
    subject, other = draw.two(draw.words.people)
    deed = draw.one(draw.words.deeds)
    far = f"the {_number(other, not many)}"
    inner = (
        f"{_present(deed, many)[0]} {far}" if i // 2 % 2 else f"{far} {_present(deed, not many)[0]}"
    )
    act = _present(draw.one(draw.words.acts), many)
    return _swapped(f"the {_number(subject, many)} that {inner} _", *act)


def _coordination(draw: Draw, i: int) -> Pair:
    many = bool(i % 2)
    first, second = draw.two(draw.words.people)
    link = "and" if many else draw.one(_NEAR)
    forms = ("are", "is") if many else ("is", "are")
    return _swapped(
        f"the {first.one} {link} the {second.one} _ {draw.one(draw.words.states)}", *forms
    )


def _determiner(draw: Draw, i: int) -> Pair:
    many = bool(i % 2)
    which = (("this", "these"), ("that", "those"))[i // 2 % 2][many]
    thing = draw.one(draw.words.things)
    deed = draw.one(draw.words.handlings).past
    return _swapped(
        f"the {draw.one(draw.words.people).one} {deed} {which} _",
        _number(thing, many),
        _number(thing, not many),
    )


def _reflexive_number(draw: Draw, i: int) -> Pair:
    many = bool(i % 2)
    nouns, self = ((draw.words.men, "himself"), (draw.words.women, "herself"))[i // 2 % 2]
    forms = ("themselves", self) if many else (self, "themselves")
    subject = _number(draw.one(nouns), many)
    place = draw.one(draw.words.places)
    return _swapped(f"the {subject} in the {place} {draw.one(draw.words.deeds).past} _", *forms)


def _his_or_hers(draw: Draw, i: int) -> tuple[Noun, Noun, tuple[str, str]]:
    """Somebody, somebody else, and the reflexives of both."""
    man, woman = draw.one(draw.words.men), draw.one(draw.words.women)
    if i % 2:
        return man, woman, ("himself", "herself")
    return woman, man, ("herself", "himself")


def _reflexive_gender(draw: Draw, i: int) -> Pair:
    deed = draw.one(draw.words.deeds).past
    if i // 2 % 2:
        subject, other, forms = _his_or_hers(draw, i)
        return _swapped(f"the {subject.one} {draw.one(_NEAR)} the {other.one} {deed} _", *forms)
    his = bool(i % 2)
    name = draw.one(draw.words.his_names if his else draw.words.her_names)
    forms = ("himself", "herself") if his else ("herself", "himself")
    return _swapped(f"{name} {deed} _ in the {draw.one(draw.words.places)}", *forms)


def _binding(draw: Draw, i: int) -> Pair:
    subject, other, forms = _his_or_hers(draw, i)
    deed = draw.one(draw.words.deeds).past
    if i // 2 % 2:
        return _swapped(f"the {other.one}'s {subject.one} {deed} _", *forms)
    report = draw.one(draw.words.reports).past
    return _swapped(f"the {other.one} {report} that the {subject.one} {deed} _", *forms)


def _negative_polarity(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    inner = draw.one(draw.words.deeds).past
    if i % 2:
        rest = f"has ever {draw.one(draw.words.acts).participle}"
    else:
        rest = f"{draw.one(draw.words.handlings).past} any {draw.one(draw.words.things).many}"
    name = draw.one((*draw.words.his_names, *draw.words.her_names))
    start = f"{name} {draw.one(draw.words.reports).past} that"
    return (
        f"{start} no {subject.one} that the {other.many} {inner} {rest}",
        f"{start} the {subject.one} that no {other.many} {inner} {rest}",
    )


def _argument_structure(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    deed, act = draw.one(draw.words.deeds).past, draw.one(draw.words.acts).past
    if i % 2:
        return _swapped(f"the {subject.one} _ {draw.one(_NEAR)} the {other.one}", act, deed)
    return _swapped(f"the {subject.one} _ the {other.one}", deed, act)


def _complement(draw: Draw, i: int) -> Pair:
    aim, taste = draw.one(draw.words.aims).past, draw.one(draw.words.tastes).past
    act = draw.one(draw.words.acts)
    subject, place = draw.one(draw.words.people).one, draw.one(draw.words.places)
    if i % 2:
        return _swapped(f"the {subject} _ to {act.base} in the {place}", aim, taste)
    return _swapped(f"the {subject} _ {act.ing} in the {place}", taste, aim)


def _filler_gap(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    report, deed = draw.one(draw.words.reports).past, draw.one(draw.words.handlings).past
    frame = f"the {subject.one} {report} _ the {other.one} {deed}"
    if i % 2:
        return _swapped(frame, "what", "that")
    return _swapped(f"{frame} the {draw.one(draw.words.things).one}", "that", "what")


def _island(draw: Draw, i: int) -> Pair:
    asked, first, second = draw.three(draw.words.people)
    deed, other = draw.two(draw.words.deeds)
    start = f"which {asked.one} did the {first.one}"
    if i % 2:
        third = draw.one([one for one in draw.words.people if one not in (asked, first, second)])
        when = ("before", "after", "because")[i // 2 % 3]
        return (
            f"{start} {deed.base} {when} the {second.one} {other.past} the {third.one}",
            f"{start} {deed.base} the {third.one} {when} the {second.one} {other.past}",
        )
    return (
        f"{start} that {other.past} the {second.one} {deed.base}",
        f"{start} that {other.past} {deed.base} the {second.one}",
    )


def _pronoun_case(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    report, deed = draw.one(draw.words.reports).past, draw.one(draw.words.deeds).past
    he, him = (("he", "him"), ("she", "her"), ("they", "them"), ("we", "us"))[i // 2 % 4]
    start = f"the {subject.one} {report} that"
    place = f"in the {draw.one(draw.words.places)}"  # or a pronoun at the end would tell its case
    if i % 2:
        return _swapped(f"{start} _ {deed} the {other.one} {place}", he, him)
    return _swapped(f"{start} the {other.one} {deed} _ {place}", him, he)


def _verb_form(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    deed = draw.one(draw.words.deeds)
    helps = (("is", "was"), ("has", "had"), ("will", "might"))
    forms = (deed.ing, deed.participle, deed.base)
    right = i % 3
    wrong = (right + 1 + i // 3 % 2) % 3
    frame = f"the {subject.one} {helps[right][i // 6 % 2]} _ the {other.one}"
    return _swapped(frame, forms[right], forms[wrong])


def _passive(draw: Draw, i: int) -> Pair:
    deed = draw.one(draw.words.takings)
    subject, thing = draw.one(draw.words.people).one, draw.one(draw.words.things).one
    if i % 2:
        return _swapped(f"the {thing} was _ by the {subject}", deed.participle, deed.past)
    place = draw.one(draw.words.places)
    return _swapped(f"the {subject} _ the {thing} in the {place}", deed.past, deed.participle)


def _tense(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    deed = draw.one(draw.words.deeds)
    span = ("day", "week", "month", "year", "summer", "winter")[i // 2 % 6]
    past, future = ("yesterday", "tomorrow") if span == "day" else (f"last {span}", f"next {span}")
    if i % 2:
        return _swapped(f"the {subject.one} will {deed.base} the {other.one} _", future, past)
    return _swapped(f"the {subject.one} {deed.past} the {other.one} _", past, future)


def _quantifier(draw: Draw, i: int) -> Pair:
    start = f"the {draw.one(draw.words.people).one} {draw.one(draw.words.orders).past}"
    degree = ("too", "so")[i // 2 % 2]
    if i % 2:
        return _swapped(f"{start} {degree} _ {draw.one(draw.words.things).many}", "many", "much")
    return _swapped(f"{start} {degree} _ {draw.one(draw.words.stuff)}", "much", "many")


def _adjective_order(draw: Draw, i: int) -> Pair:
    opinion, size = draw.one(draw.words.opinions), draw.one(draw.words.sizes)
    color = draw.one(draw.words.colors)
    first, second = ((opinion, size), (size, color), (opinion, color))[i % 3]
    subject, deed = draw.one(draw.words.people).one, draw.one(draw.words.handlings).past
    frame = f"the {subject} {deed} the _ {draw.one(draw.words.things).one}"
    return _swapped(frame, f"{first} {second}", f"{second} {first}")


def _comparative(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    trait = draw.one(draw.words.traits)
    if i % 2:
        return _swapped(f"the {subject.one} is as _ as the {other.one}", trait.plain, trait.more)
    return _swapped(f"the {subject.one} is _ than the {other.one}", trait.more, trait.plain)


def _existential(draw: Draw, i: int) -> Pair:
    thing, other = draw.two(draw.words.things)
    many = bool(i % 2)
    weak, strong = ((("a", "every"), ("a", "each")), (("some", "most"), ("several", "most")))[many][
        i // 2 % 2
    ]
    start = "there were" if many else "there was"
    first, second = _number(thing, many), _number(other, many)
    rest = f"in the {draw.one(draw.words.places)}"
    near = draw.one(_NEAR)
    return (
        f"{start} {weak} {first} {near} {strong} {second} {rest}",
        f"{start} {strong} {first} {near} {weak} {second} {rest}",
    )


def _adverb_order(draw: Draw, i: int) -> Pair:
    subject, other = draw.two(draw.words.people)
    deed, manner = draw.one(draw.words.deeds).past, draw.one(draw.words.manners)
    return (
        f"the {subject.one} {manner} {deed} the {other.one}",
        f"the {subject.one} {deed} {manner} the {other.one}",
    )


PHENOMENA = (
    Phenomenon("agreement", _agreement),
    Phenomenon("agreement-attractor", _agreement_attractor),
    Phenomenon("agreement-relative", _agreement_relative),
    Phenomenon("coordination", _coordination),
    Phenomenon("determiner", _determiner),
    Phenomenon("reflexive-number", _reflexive_number),
    Phenomenon("reflexive-gender", _reflexive_gender),
    Phenomenon("binding", _binding),
    Phenomenon("negative-polarity", _negative_polarity),
    Phenomenon("argument-structure", _argument_structure),
    Phenomenon("complement", _complement),
    Phenomenon("filler-gap", _filler_gap),
    Phenomenon("island", _island),
    Phenomenon("pronoun-case", _pronoun_case),
    Phenomenon("verb-form", _verb_form),
    Phenomenon("passive", _passive),
    Phenomenon("tense", _tense),
    Phenomenon("quantifier", _quantifier),
    Phenomenon("adjective-order", _adjective_order),
    Phenomenon("comparative", _comparative),
    Phenomenon("existential", _existential),
    Phenomenon("adverb-order", _adverb_order),
)
