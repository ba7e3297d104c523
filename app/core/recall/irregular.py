"""English words whose forms no rule of endings brings together, each with the form it is looked for by.

"Went" is looked for as "go", "wives" as "wife", "colour" as "color", "twelfth" as "12". Forms that a stemmer
takes back to the same stem ("travelled") are left out. Words that mean two things as often as one stand here
only where the wrong reading costs little: "left" is of "leave", but "rose", "bit", "ground", "lives" and
"second" stay as they are. Knows nothing of stems or of what is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

_VERBS = """
arise: arose arisen | awake: awoke awoken | bear: borne | beat: beaten | become: became | begin: began begun
behold: beheld | bend: bent | bite: bitten | bleed: bled | blow: blew blown | break: broke broken
breed: bred | bring: brought | build: built | burn: burnt | buy: bought | catch: caught
choose: chose chosen | cling: clung | come: came | creep: crept | deal: dealt | dig: dug | draw: drew drawn
dream: dreamt | drink: drank drunk drunken | drive: drove driven | dwell: dwelt | dye: dyed | eat: ate eaten
fall: fell fallen | feed: fed | feel: felt | fight: fought | find: found | flee: fled | fling: flung
fly: flew flown | forbid: forbade forbidden | foresee: foresaw foreseen | foretell: foretold
forget: forgot forgotten | forgive: forgave forgiven | forsake: forsook forsaken | freeze: froze frozen
get: got gotten | give: gave given | go: went gone goes | grow: grew grown | hang: hung | hear: heard
hide: hid hidden | hold: held | keep: kept | kneel: knelt | know: knew known | lay: laid | lead: led
lean: leant | leap: leapt | learn: learnt | leave: left | lend: lent | lie: lain | light: lit | lose: lost
make: made | mean: meant | meet: met | melt: molten | mislay: mislaid | mislead: misled | misspell: misspelt
mistake: mistook mistaken | misunderstand: misunderstood | mow: mown | outdo: outdid outdone
outgrow: outgrew outgrown | overcome: overcame | overdo: overdid overdone | overeat: overate overeaten
overhear: overheard | override: overrode overridden | overrun: overran | oversee: oversaw overseen
oversleep: overslept | overtake: overtook overtaken | overthrow: overthrew overthrown
overwrite: overwrote overwritten | panic: panicked panicking | pay: paid | picnic: picnicked picnicking
mimic: mimicked mimicking | plead: pled | prove: proven | rebuild: rebuilt | redo: redid redone
remake: remade | repay: repaid | rerun: reran | resell: resold | resend: resent | retake: retook retaken
retell: retold | rethink: rethought | rewind: rewound | rewrite: rewrote rewritten | ride: rode ridden
ring: rang rung | rise: risen | rot: rotten | run: ran | say: said | see: saw seen | seek: sought
sell: sold | send: sent | sew: sewn | shake: shook shaken | shave: shaven | shear: shorn | shine: shone
shoot: shot | show: shown | shrink: shrank shrunk shrunken | sing: sang sung | sink: sank sunk sunken
sit: sat | slay: slew slain | sleep: slept | slide: slid | sling: slung | smell: smelt | sow: sown
speak: spoke spoken | speed: sped | spell: spelt | spend: spent | spill: spilt | spin: spun | spit: spat
spoil: spoilt | spring: sprang sprung | stand: stood | steal: stole stolen | sting: stung
stink: stank stunk | strew: strewn | stride: strode stridden | strike: struck stricken | string: strung
strive: strove striven | swear: swore sworn | sweep: swept | swell: swollen | swim: swam swum | swing: swung
take: took taken | teach: taught | tear: tore torn | tell: told | think: thought | thrive: throve
throw: threw thrown | traffic: trafficked trafficking | tread: trod trodden | understand: understood
undertake: undertook undertaken | undergo: underwent undergone | undo: undid undone | unwind: unwound
uphold: upheld | wake: woke woken | wear: wore worn | weave: wove woven | weep: wept | win: won
withdraw: withdrew withdrawn | withhold: withheld | withstand: withstood | wring: wrung
write: wrote written
"""

_NOUNS = """
person: people peoples ppl | child: children childrens | man: men | woman: women | wife: wives
knife: knives | half: halves | shelf: shelves | wolf: wolves | thief: thieves | loaf: loaves
scarf: scarves | calf: calves | hoof: hooves | elf: elves | dwarf: dwarves | self: selves | wharf: wharves
foot: feet | tooth: teeth | goose: geese | mouse: mice | louse: lice | ox: oxen | gentleman: gentlemen
policeman: policemen | fireman: firemen | salesman: salesmen | fisherman: fishermen
businessman: businessmen | businesswoman: businesswomen | policewoman: policewomen
grandchild: grandchildren | stepchild: stepchildren | godchild: godchildren | schoolchild: schoolchildren
freshman: freshmen | snowman: snowmen | midwife: midwives | housewife: housewives | fiance: fiancee fiancees
bus: buses busses | gas: gases gasses | lens: lenses | quiz: quizzes quizzed | canvas: canvases
iris: irises | pancreas: pancreases | criterion: criteria | phenomenon: phenomena | analysis: analyses
crisis: crises | thesis: theses | hypothesis: hypotheses | diagnosis: diagnoses | prognosis: prognoses
synthesis: syntheses | oasis: oases | parenthesis: parentheses | synopsis: synopses | emphasis: emphases
index: indices | vertex: vertices | matrix: matrices | appendix: appendices | cactus: cacti | fungus: fungi
alumnus: alumni alumna alumnae | syllabus: syllabi | stimulus: stimuli | nucleus: nuclei | radius: radii
octopus: octopi | bacterium: bacteria | memorandum: memoranda | curriculum: curricula | schema: schemata
automaton: automata | stratum: strata
"""

_ADJECTIVES = """
good: better best | bad: worse worst | far: farther farthest | old: older oldest elder eldest
young: younger youngest | new: newer newest | big: bigger biggest | large: larger largest
small: smaller smallest | little: littler littlest | tall: taller tallest | short: shorter shortest
long: longer longest | high: higher highest | low: lower lowest | deep: deeper deepest | wide: wider widest
narrow: narrowest | broad: broader broadest | thick: thicker thickest | thin: thinner thinnest
fat: fatter fattest | heavy: heavier heaviest | light: lighter lightest | fast: faster fastest
quick: quicker quickest | slow: slower slowest | early: earlier earliest | easy: easier easiest
hard: harder hardest | tough: tougher toughest | simple: simpler simplest | cheap: cheaper cheapest
rich: richer richest | poor: poorer poorest | happy: happier happiest | sad: sadder saddest
angry: angrier angriest | lonely: lonelier loneliest | hot: hotter hottest | warm: warmer warmest
cold: colder coldest | cool: coolest | wet: wetter wettest | dry: drier driest | sunny: sunnier sunniest
rainy: rainier rainiest | windy: windier windiest | strong: stronger strongest | weak: weaker weakest
healthy: healthier healthiest | sick: sicker sickest | safe: safer safest | busy: busier busiest
pretty: prettier prettiest | nice: nicer nicest | kind: kindest | funny: funnier funniest
scary: scarier scariest | great: greater greatest | fine: finest | bright: brighter brightest
dark: darker darkest | loud: louder loudest | quiet: quieter quietest | clean: cleanest
dirty: dirtier dirtiest | smart: smarter smartest | wise: wiser wisest | calm: calmer calmest
fresh: fresher freshest | soft: softer softest | sweet: sweeter sweetest | tasty: tastier tastiest
spicy: spicier spiciest | near: nearer nearest | close: closer closest | brave: braver bravest
clear: clearer clearest | rare: rarer rarest | odd: oddest | tiny: tinier tiniest | huge: hugest
noisy: noisier noisiest
"""

# "One", "first", "second", "once" and "twice" are left out: they seldom count anything.
_NUMBERS = """
0: zero | 1: 1st | 2: two 2nd | 3: three third thirds 3rd | 4: four fourth 4th | 5: five fifth 5th
6: six sixth 6th | 7: seven seventh 7th | 8: eight eighth 8th | 9: nine ninth 9th | 10: ten tenth 10th
11: eleven eleventh 11th | 12: twelve twelfth 12th | 13: thirteen thirteenth 13th
14: fourteen fourteenth 14th | 15: fifteen fifteenth 15th | 16: sixteen sixteenth 16th
17: seventeen seventeenth 17th | 18: eighteen eighteenth 18th | 19: nineteen nineteenth 19th
20: twenty twentieth 20th | 21: 21st | 22: 22nd | 23: 23rd | 24: 24th | 25: 25th | 26: 26th | 27: 27th
28: 28th | 29: 29th | 30: thirty thirtieth 30th | 31: 31st | 40: forty fortieth 40th
50: fifty fiftieth 50th | 60: sixty sixtieth 60th | 70: seventy seventieth 70th | 80: eighty eightieth 80th
90: ninety ninetieth 90th | 100: hundred hundreds hundredth 100th | 1000: thousand thousands thousandth
"""

# "May" is none, and "sat" and "sun" are no days.
_DATES = """
january: jan | february: feb | march: mar | april: apr | june: jun | july: jul | august: aug
september: sep sept | october: oct | november: nov | december: dec | monday: mon | tuesday: tue tues
wednesday: wed | thursday: thu thur thurs | friday: fri | hour: hr hrs | minute: mins | year: yr yrs
week: wk wks | month: mth mths | birthday: bday bdays | christmas: xmas
"""

_SPELLINGS = """
favorite: favourite favourites fave faves fav favs | neighborhood: neighbourhood neighbourhoods
colorful: colourful | flavorful: flavourful | honorable: honourable | behavioral: behavioural
laborer: labourer labourers | gray: grey greys | cozy: cosy cosier cosiest
mom: mum mums mummy mama momma mommy mam | pajamas: pyjamas pyjama pj pjs | mold: mould moulds mouldy
mustache: moustache moustaches moustached | plow: plough ploughs ploughed ploughing | curb: kerb kerbs
tire: tyre tyres | program: programme programmes | check: cheque cheques
catalog: catalogue catalogues catalogued | dialog: dialogue dialogues | analog: analogue
airplane: aeroplane aeroplanes | aluminum: aluminium | license: licence licences | defense: defence defences
offense: offence offences | pretense: pretence | practice: practise practised practises practising
jewelry: jewellery | counselor: counsellor counsellors | woolen: woollen | skillful: skilful
judgment: judgement judgements | artifact: artefact artefacts | skeptical: sceptical
skeptic: sceptic sceptics | encyclopedia: encyclopaedia | pediatric: paediatric
pediatrician: paediatrician paediatricians | anesthesia: anaesthesia | anesthetic: anaesthetic
gynecologist: gynaecologist | anemia: anaemia | anemic: anaemic | diarrhea: diarrhoea | estrogen: oestrogen
fetus: foetus | hemorrhage: haemorrhage | leukemia: leukaemia | orthopedic: orthopaedic
esophagus: oesophagus | maneuver: manoeuvre manoeuvres | archeology: archaeology
archeologist: archaeologist archaeologists | donut: doughnut doughnuts | yogurt: yoghurt yoghurts
whiskey: whisky whiskies | chili: chilli chillies | omelet: omelette omelettes | jail: gaol
skepticism: scepticism | analyze: analyse analysed analysing | paralyze: paralyse paralysed paralysing
catalyze: catalyse catalysed | math: mathematics | sulfur: sulphur | inquiry: enquiry enquiries
inquire: enquire enquired | among: amongst | specialty: speciality specialities | tidbit: titbit
draft: draught draughts | disk: disc discs
"""

_SHORT = """
father: dad dads daddy daddies papa | aunt: auntie aunty aunties
grandmother: grandma grandmas granny gran nana | grandfather: grandpa grandpas granddad grandad grandads
brother: bro bros | sister: sis | husband: hubby | girlfriend: gf | boyfriend: bf | stomach: tummy tummies
dog: doggy doggie doggies | cat: kitty | photograph: photo photos pic pics
bicycle: bike bikes biked biking | telephone: phone phones phoned phoning | television: tv tvs telly
refrigerator: fridge fridges | veterinarian: vet vets | university: uni unis | examination: exam exams
gymnasium: gym gyms | advertisement: ad ads advert adverts | information: info | documentation: docs
repository: repo repos | configuration: config configs | administrator: admin admins | environment: env envs
production: prod | database: db dbs | performance: perf | specification: spec specs
parameter: param params | argument: arg args | directory: dir dirs | message: msg msgs | number: num nums
kubernetes: k8s | postgres: postgresql | pound: lb lbs | kilogram: kg kgs | kilometer: km kms
centimeter: cm | ounce: oz | vegetable: veggie veggies veg | hamburger: burger burgers
appointment: appt appts | department: dept depts | government: govt | medication: meds
professor: prof profs | graduate: grad grads | chemistry: chem | conversation: convo convos
vacation: vacay | celebrity: celeb celebs | champion: champ champs | introduction: intro intros
rhinoceros: rhino rhinos | chimpanzee: chimp chimps | mayonnaise: mayo | influenza: flu
synchronize: sync syncs synced syncing | executive: exec execs | limousine: limo limos
"""

# Words in -ise, -our and -re: what comes before these endings.
_ISE = """
organ reorgan real recogn apolog emphas custom priorit minim maxim optim author final local normal central
initial serial synchron categor summar memor visual util standard character critic econom sympath legal
modern personal special hospital fertil steril mobil stabil human civil colon token capital social energ
item immun vandal random parallel symbol familiar general harmon hypnot jeopard monet revital scrutin subsid
terror victim container virtual anonym sanit fantas national equal neutral traumat fossil computer digit
crystal motor patron penal tranquil
"""
_OUR = "col fav hon hum lab rum flav harb neighb od vap sav endeav arm tum parl vig splend behavi"
_RE = "cent theat fib lit met kilomet centimet millimet calib spect somb lust meag amphitheat"
_ENDINGS = (
    (_ISE, ("ise", "ises", "ised", "ising", "iser", "isers", "isation", "isations", "isational"), "ize"),
    (_OUR, ("our", "ours", "oured", "ouring"), "or"),
    (_RE, ("re", "res", "red"), "er"),
)


def _listed(*texts: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        for entry in text.replace("\n", "|").split("|"):
            base, _, forms = entry.partition(":")
            yield from ((form, base.strip()) for form in forms.split())


def _spelled() -> Iterator[tuple[str, str]]:
    for roots, endings, american in _ENDINGS:
        for root in roots.split():
            yield from ((root + ending, root + american) for ending in endings)


FORMS: Mapping[str, str] = MappingProxyType(
    dict(_spelled()) | dict(_listed(_VERBS, _NOUNS, _ADJECTIVES, _NUMBERS, _DATES, _SPELLINGS, _SHORT))
)
"""Each form with its base form, both in lower case. A base form is never a form itself."""


def base_of(word: str) -> str:
    """The form `word` (in lower case) is looked for by; itself, if it has no other."""
    return FORMS.get(word, word)
