"""The open-class words of the minimal pairs' grammar, split three ways."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal, NamedTuple, TypeVar

Split = Literal["train", "dev", "test"]
T = TypeVar("T")


class Noun(NamedTuple):
    """One and many of it."""

    one: str
    many: str


class Verb(NamedTuple):
    """The forms of a verb."""

    base: str
    s: str
    past: str
    participle: str
    ing: str


class Adjective(NamedTuple):
    """An adjective and its comparative."""

    plain: str
    more: str


def noun(text: str) -> Noun:
    """A noun, with its plural after a slash where it is irregular.

    Example:
        >>> noun("witness").many, noun("lady").many, noun("man/men").many
        ('witnesses', 'ladies', 'men')
    """
    one, _, many = text.partition("/")
    return Noun(one, many or _with_s(one))


def verb(text: str) -> Verb:
    """A verb, with its past and its participle after slashes where they are irregular.

    Example:
        >>> verb("hug/hugged")
        Verb(base='hug', s='hugs', past='hugged', participle='hugged', ing='hugging')
        >>> verb("tease").ing, verb("cry").past, verb("take/took/taken").participle
        ('teasing', 'cried', 'taken')
    """
    base, *irregular = text.split("/")
    past = irregular[0] if irregular else _with_ed(base)
    doubled = past == f"{base}{base[-1]}ed"
    stem = base[:-1] if base.endswith("e") else base + base[-1] * doubled
    return Verb(base, _with_s(base), past, irregular[-1] if irregular else past, f"{stem}ing")


def adjective(text: str) -> Adjective:
    """A short adjective.

    Example:
        >>> adjective("happy").more, adjective("wise").more, adjective("thin/thinner").more
        ('happier', 'wiser', 'thinner')
    """
    plain, _, more = text.partition("/")
    stem = _with_ed(plain).removesuffix("d").removesuffix("e")
    return Adjective(plain, more or f"{stem}er")


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if _ends_in_y(word) else f"{word}s"


def _with_ed(word: str) -> str:
    if word.endswith("e"):
        return f"{word}d"
    return f"{word[:-1]}ied" if _ends_in_y(word) else f"{word}ed"


def _ends_in_y(word: str) -> bool:
    return word.endswith("y") and word[-2] not in "aeiou"


_PEOPLE = """teacher doctor lawyer driver farmer singer dancer painter writer banker baker
barber plumber tailor pilot sailor soldier student nurse clerk chef guard judge reporter editor
engineer artist pianist dentist author tourist neighbor player coach manager minister senator
tenant customer visitor stranger scientist professor surgeon librarian carpenter gardener
butcher hunter miner officer detective witness cashier composer director broker programmer
translator architect"""
_MEN = """king prince actor uncle grandfather husband monk waiter duke boy man/men
gentleman/gentlemen nephew son brother father groom landlord policeman/policemen wizard"""
_WOMEN = """queen princess actress aunt grandmother wife/wives nun waitress duchess girl
woman/women lady niece daughter sister mother bride landlady policewoman/policewomen witch"""
_HIS_NAMES = """David Robert Thomas Peter Samuel George Patrick Andrew Kevin Brian Edward Steven
Gregory Frank Raymond Walter Harold Carl Arthur Roger Lawrence Albert Ralph Eugene Philip"""
_HER_NAMES = """Maria Susan Linda Karen Helen Sandra Donna Laura Sarah Julie Rachel Rebecca
Emily Alice Teresa Diana Emma Judith Martha Andrea Frances Christine Janet Catherine Nancy"""
# None begins with a vowel's sound, so that each follows "a".
_THINGS = """book lamp vase chair bottle basket letter plate spoon fork cup bowl box bag hat
coat shirt shoe ring coin candle clock mirror pillow blanket bucket ladder hammer rope guitar
violin camera statue helmet suitcase wallet necklace bracelet kettle teapot pencil notebook
newspaper ticket parcel poster trophy toy ball kite flag drum trumpet broom towel carpet curtain
cushion folder magazine"""
_STUFF = """rice sugar flour butter milk honey bread cheese coffee tea wine juice salt pepper
vinegar meat beef pork pasta furniture luggage jewelry equipment clothing soap gravel cement hay
wool silk"""
_PLACES = """garden kitchen library museum theater station market school hospital church castle
factory restaurant hotel park office cellar attic barn stadium airport harbor village cabin
chapel hallway courtyard tunnel bakery gallery"""

# These take no object.
_ACTS = """laugh smile sneeze cough arrive yawn faint giggle sigh tremble shiver complain
disappear snore stumble limp/limped frown blush apologize hesitate vanish grin/grinned
sleep/slept cry wait linger smirk doze sob/sobbed wink weep/wept chuckle shudder whine pout"""
# These need an object, and people do them to people.
_DEEDS = """praise admire greet blame insult hire thank invite rescue arrest protect describe
mention hug/hugged respect scold contact defend embarrass surprise frighten comfort ignore
criticize escort congratulate flatter punish mock tease amuse impress offend recognize deceive
betray dismiss reward adore despise envy welcome"""
# These need an object, and people do them to things.
_HANDLINGS = """find/found repair handle restore discover destroy damage misplace purchase
wrap/wrapped polish examine inspect remove buy/bought bring/brought touch lift discard fetch
possess retrieve grab/grabbed conceal locate obtain acquire select display own"""
# Past and participle differ.
_TAKINGS = """take/took/taken steal/stole/stolen hide/hid/hidden draw/drew/drawn
choose/chose/chosen throw/threw/thrown shake/shook/shaken forget/forgot/forgotten
break/broke/broken see/saw/seen"""
_ORDERS = "order need use store request gather waste ship/shipped pack hoard"  # of things and stuff
_AIMS = """decide hope agree refuse promise manage offer pretend threaten want expect fail wish
vow volunteer"""  # to do something
_TASTES = """enjoy avoid deny consider appreciate admit/admitted suggest imagine resist risk
postpone miss recommend discuss detest"""  # doing something
# That or what somebody did.
_REPORTS = """know/knew remember explain reveal notice understand/understood learn guess
announce realize"""

_STATES = """tired nervous famous ready ill careful cheerful curious honest jealous generous
patient thirsty lonely absent awake anxious confident exhausted guilty innocent late modest
popular relaxed satisfied serious talented upset worried stubborn silent impatient grateful
ambitious"""
_TRAITS = """tall old young strong kind brave rich poor fast slow smart thin/thinner short loud
quiet weak wise calm proud rude nice tough happy funny lazy busy hungry angry noisy friendly
lucky healthy wealthy sleepy clumsy gentle"""
_OPINIONS = "beautiful ugly lovely horrible wonderful strange charming awful gorgeous pretty"
_SIZES = "big small tiny huge large little enormous gigantic massive miniature"
_COLORS = "red blue green yellow black white brown gray pink purple"
_MANNERS = """quickly slowly quietly loudly gently rudely politely secretly openly kindly
bravely calmly proudly eagerly angrily nervously carefully warmly coldly suddenly"""


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of a split; no other split has any of them."""

    people: Sequence[Noun]
    men: Sequence[Noun]
    women: Sequence[Noun]
    his_names: Sequence[str]
    her_names: Sequence[str]
    things: Sequence[Noun]
    stuff: Sequence[str]
    places: Sequence[str]
    acts: Sequence[Verb]
    deeds: Sequence[Verb]
    handlings: Sequence[Verb]
    takings: Sequence[Verb]
    orders: Sequence[Verb]
    aims: Sequence[Verb]
    tastes: Sequence[Verb]
    reports: Sequence[Verb]
    states: Sequence[str]
    traits: Sequence[Adjective]
    opinions: Sequence[str]
    sizes: Sequence[str]
    colors: Sequence[str]
    manners: Sequence[str]


@cache
def words_of(split: Split) -> Words:
    """Three fifths of all words for train, a fifth each for dev and test."""

    def some(text: str) -> list[str]:
        places = {"train": (0, 1, 2), "dev": (3,), "test": (4,)}[split]
        return [word for i, word in enumerate(text.split()) if i % 5 in places]

    def nouns(text: str) -> list[Noun]:
        return [noun(word) for word in some(text)]

    def verbs(text: str) -> list[Verb]:
        return [verb(word) for word in some(text)]

    return Words(
        people=nouns(_PEOPLE),
        men=nouns(_MEN),
        women=nouns(_WOMEN),
        his_names=some(_HIS_NAMES),
        her_names=some(_HER_NAMES),
        things=nouns(_THINGS),
        stuff=some(_STUFF),
        places=some(_PLACES),
        acts=verbs(_ACTS),
        deeds=verbs(_DEEDS),
        handlings=verbs(_HANDLINGS),
        takings=verbs(_TAKINGS),
        orders=verbs(_ORDERS),
        aims=verbs(_AIMS),
        tastes=verbs(_TASTES),
        reports=verbs(_REPORTS),
        states=some(_STATES),
        traits=[adjective(word) for word in some(_TRAITS)],
        opinions=some(_OPINIONS),
        sizes=some(_SIZES),
        colors=some(_COLORS),
        manners=some(_MANNERS),
    )


class Draw:
    """Draws words of a split, the same ones for the same seed.

    Only `Random.random` is used, whose numbers no version of Python changes.
    """

    def __init__(self, split: Split, seed: str) -> None:
        self.words = words_of(split)
        self._random = Random(seed)

    def one(self, known: Sequence[T]) -> T:
        """Any of them."""
        return known[int(self._random.random() * len(known))]

    def two(self, known: Sequence[T]) -> tuple[T, T]:
        """Two different ones."""
        first = int(self._random.random() * len(known))
        second = int(self._random.random() * (len(known) - 1))
        return known[first], known[second + (second >= first)]

    def three(self, known: Sequence[T]) -> tuple[T, T, T]:
        """Three different ones."""
        first, second = self.two(known)
        return first, second, self.one([each for each in known if each not in (first, second)])
