"""Groups of English words that speak of the same thing: near-synonyms, close kinds, a verb and its nouns.

A question may use another word than the message that answers it. Words stand in their base form (`irregular`)
and in lower case; words that stand for too much are left out, so that what is found stays near.
Knows nothing of what is searched, nor of the stemmer: the caller brings one.
"""

from __future__ import annotations

from collections.abc import Callable

_GROUPS = """
family relative kin household clan
mother mom maternal parent stepmother motherhood
father paternal parent stepfather fatherhood
brother sister sibling twin
grandmother grandfather grandparent grandson granddaughter grandchild
child kid toddler youngster son daughter boy girl
aunt uncle niece nephew cousin
husband wife spouse partner widow
boyfriend girlfriend partner lover romance romantic dating relationship
marry marriage wedding bride groom newlywed spouse honeymoon
engaged propose fiance betrothed marry ring
divorce separate split breakup ex
pregnant pregnancy maternity trimester ultrasound baby
baby infant newborn birth born childbirth midwife toddler crib
adopt orphan foster orphanage
friend friendship buddy pal companion acquaintance
kiss hug cuddle embrace
love adore cherish affection fond
childhood youth young upbringing teenager teen adolescent
old age elderly senior
name nickname surname title alias
happy glad joy cheerful delighted thrilled pleased
sad unhappy depressed sorrow miserable gloomy upset disappoint
angry anger mad furious annoyed irritated rage upset frustrated
afraid fear scared scary anxious nervous terrified frightened worry phobia
worry concern stress anxiety anxious tension overwhelmed pressure
excited thrilled eager enthusiastic enthusiasm
lonely alone isolated solitude loneliness
calm relax peaceful soothe serene unwind
tired exhausted fatigue weary sleepy drained burnout
ashamed shame embarrassed guilt guilty humiliated regret
grateful gratitude thankful appreciate
confident brave bravery courage bold
motivate inspire encourage uplift
goal aim target objective purpose ambition aspire dream hope wish
help support assist aid comfort reassure
die death dead deceased funeral grief grieve mourn bereavement
laugh funny joke humor hilarious comedy giggle
cry tear sob weep
sleep nap asleep insomnia bedtime nightmare
remember remind recall memory nostalgia nostalgic
sick ill unwell disease ailment influenza fever cold cough
pain ache hurt sore migraine headache
injure injury wound hurt sprain fracture bruise break
ankle knee wrist leg foot shoulder elbow arm
tooth dentist dental cavity braces orthodontist
eye vision sight eyesight blind optometrist
glass spectacles lens eyewear sunglasses
stomach belly abdomen digestion nausea gut
hair haircut hairstyle barber salon braid
doctor physician surgeon specialist clinician medic
hospital clinic ward ambulance emergency nurse paramedic
surgery surgeon surgical operation procedure
medication medicine drug pill prescription tablet dose pharmacy vaccine injection
diagnosis diagnose symptom disorder syndrome condition
cancer tumor chemotherapy oncologist leukemia
diabetes insulin sugar glucose
allergy allergic intolerance hives asthma inhaler
therapy therapist counselor counseling psychologist psychiatrist psychotherapy
treatment cure heal remedy therapy recover recovery rehab
disability handicap wheelchair impairment
exercise workout fitness gymnasium cardio yoga pilates
weight diet slim overweight obese
yoga meditate mindfulness pilates
healthy health wellness fit wellbeing
smoke cigarette tobacco vape nicotine
alcohol booze liquor drink beer wine cocktail champagne whiskey
addiction rehab sober habit relapse
job position role post occupation employment career work profession
boss manager supervisor chief employer
employee staff colleague coworker worker teammate
hire recruit employ onboard
quit resign leave notice
apply application candidate resume cv interview
fire sack layoff dismiss unemployed redundant
promote raise advance
salary wage income earn paycheck pay bonus
retire pension retiree
business company firm enterprise startup corporation venture entrepreneur founder
store shop boutique supermarket mall market
buy purchase order acquire shop
sell sale seller vendor retail
price cost fee expensive charge fare
cheap inexpensive affordable bargain discount coupon voucher
money cash fund dollar euro currency finance
pay bill invoice charge receipt
budget spend expense expenditure afford
debt owe borrow loan mortgage credit lend bank
invest stock share portfolio dividend
insurance coverage premium indemnity
possess owner belong property
client customer buyer consumer
donate contribute charity donor fundraiser
volunteer charity shelter nonprofit outreach
gift present souvenir give
lose loss misplace missing mislay
find discover locate
steal theft thief robbery rob burglar
house home apartment flat condo residence cottage
room bedroom kitchen bathroom basement attic lounge
sofa couch armchair table chair desk furniture
move relocate settle emigrate
rent lease landlord tenant rental
roommate flatmate housemate roomie
reside live dwell inhabit
hometown homeland native country nation origin roots
city town village metropolis suburb
immigrant emigrate migrate refugee
renovate remodel refurbish redecorate
repair fix mend maintenance
clean tidy wash scrub vacuum chore housework laundry
cook chef recipe culinary cuisine
bake baker bakery oven bread
dessert cake pastry pie cupcake brownie cookie sweet candy chocolate pudding
stove oven microwave refrigerator kitchen appliance
garden yard backyard lawn plant seedling
plant houseplant seedling succulent cactus fern
school college university academy campus
teach teacher lecturer professor tutor instructor educator school
student pupil undergraduate classmate learner
degree diploma bachelor master doctorate phd major graduate
class course lecture seminar workshop lesson
examination test quiz midterm assessment
homework assignment essay coursework
scholarship grant bursary fellowship
research study investigate scientist survey
science physics chemistry biology scientist scientific
math algebra geometry calculus mathematician
language speak spanish french german linguistic bilingual
eat meal food dine feed
breakfast lunch dinner supper brunch meal
restaurant diner cafe bistro eatery pizzeria
coffee espresso latte cappuccino cafe
meat beef pork chicken steak bacon lamb sausage
seafood fish salmon tuna shrimp sushi
vegetarian vegan plant meatless
fruit apple banana orange berry strawberry mango peach
vegetable carrot broccoli spinach cabbage tomato salad
pet dog cat hamster parrot animal
dog puppy hound terrier greyhound labrador poodle retriever pup canine spaniel
cat kitten feline tabby
bird parrot canary parakeet owl
hamster rabbit bunny gerbil rodent mouse
turtle tortoise reptile lizard snake gecko
horse pony mare stallion equestrian
farm farmer ranch barn cow cattle sheep goat pig livestock
veterinarian animal clinic veterinary
hobby pastime pursuit leisure
sport athlete basketball volleyball football hockey baseball
run runner jog marathon race sprint
swim swimmer pool dive snorkel
hike trek trail hiker backpacking
bicycle cycling cyclist ride
climb climber mountaineering bouldering
camp tent campfire camper campsite
ski snowboard skate sled
surf kayak canoe paddle raft
dance ballet salsa dancer choreography tango
football soccer goalkeeper league
tennis badminton squash racket
martial karate judo boxing taekwondo
team squad club crew
coach trainer instructor mentor
game gamer videogame console playstation nintendo xbox
chess puzzle boardgame checkers poker
win winner victory champion triumph
competition contest tournament compete championship
prize award trophy medal reward
music song melody tune musician lyrics album track
singer vocalist sing voice vocal choir
band orchestra ensemble group choir
instrument guitar guitarist piano pianist violin violinist drum flute cello saxophone ukulele clarinet
concert gig festival perform recital stage
painter paint draw sketch art artist artwork canvas watercolor
sculpture sculpt sculptor statue carve
ceramics pottery clay kiln wheel potter porcelain
photograph photography camera snapshot picture image portrait
museum gallery exhibit display showcase
film movie cinema theater documentary
actor actress star celebrity act
series episode season sitcom television
book novel read literature paperback reader
author writer novelist write
poem poetry poet verse
library librarian bookstore bookshop
magazine newspaper article journalist column
journal diary blog notebook
craft handmade artisan diy
knit crochet sew quilt yarn embroidery
woodworking carpentry carve carpenter wood
jewelry necklace bracelet earring pendant ring
trip travel holiday vacation journey visit flight tour getaway
fly flight airplane plane airport airline pilot
car vehicle automobile truck van suv drive driver
train bus subway metro tram transit railway taxi cab
motorcycle motorbike scooter moped
ship boat ferry cruise vessel sail yacht
hotel hostel motel resort inn accommodation
luggage suitcase backpack bag baggage
passport visa border immigration
guest visitor host visit invite rsvp
late delay postpone overdue
accident crash collision wreck
rain storm thunderstorm rainy shower drizzle
snow blizzard ice snowfall frost cold freeze chilly winter
sun sunny sunshine hot heat warm heatwave
sunset sunrise dusk dawn
disaster flood earthquake hurricane wildfire tornado
nature outdoors wildlife wilderness
beach coast shore seaside ocean sea
lake river stream pond waterfall
mountain hill peak summit
forest woods woodland tree
flower bloom rose tulip daisy lily orchid sunflower bouquet
begin start commence launch
stop cease halt quit
finish complete end conclude done
join enroll register signup
change alter modify switch adjust
practice rehearse drill training
improve enhance upgrade progress
increase grow growth rise raise
decrease reduce reduction decline shrink
choose pick select choice option
decide decision determine conclude choose
say tell mention remark
plan intend intention schedule
succeed success achieve accomplish
fail failure unsuccessful flop
talk speak discuss chat conversation
question ask inquire inquiry query
answer reply respond response
promise vow pledge swear
telephone call ring dial voicemail smartphone mobile cellphone iphone
mail letter postcard envelope email inbox
message text sms chat notify
suggest recommend advise advice propose
argue argument quarrel fight disagree dispute
apologize sorry forgive
agree agreement consent approve accept
refuse reject decline deny
allow permit permission authorize
lie dishonest deceive cheat
speech presentation talk keynote
celebrate party festivity gathering birthday anniversary
event occasion ceremony festival
why reason cause because motive
clothes outfit garment apparel attire wardrobe dress skirt
shirt blouse sweater hoodie jumper jacket coat
pants trousers jeans shorts
shoe boot sneaker sandal heel
computer laptop pc desktop macbook
internet online web website site page wifi
app application software program
religion faith religious belief spiritual god
church mosque temple synagogue parish pray prayer worship
priest pastor minister rabbi imam
military army soldier navy veteran war battle combat
law legal attorney lawyer solicitor
court judge trial lawsuit sue jury
police officer cop detective arrest
crime criminal illegal offense prison jail
government politics politician mayor senator
vote elect ballot campaign
protest demonstration march rally activism activist
rights equality justice discrimination
ethnic heritage culture tradition
lgbtq gay lesbian transgender queer pride
transgender transition gender trans
color red blue green yellow purple pink
big large huge enormous giant
small little tiny miniature
hard difficult difficulty tough challenge
beautiful pretty gorgeous lovely stunning
danger risk hazard unsafe
problem issue trouble difficulty
error bug failure crash exception fault defect regression
debug troubleshoot diagnose investigate
fix patch solve solution resolve hotfix workaround
deploy release rollout ship launch
rollback revert undo restore
server host machine vm
cluster kubernetes docker container pod
database sql postgres mysql sqlite
dataset data record
backup snapshot restore archive
cache redis memcached
password secret credential key token passphrase
login authentication signin auth
permission access privilege role
encrypt tls certificate ssl
vulnerability exploit breach security
network connection socket port
file document attachment
directory folder path
delete remove erase drop
edit modify revise amend update
timeout latency slow hang
api endpoint route interface url link
log trace stacktrace traceback
monitor alert observability metric
performance benchmark throughput latency
code source script program
library package dependency module framework
branch merge commit git
repository git github gitlab
review feedback comment
test pytest unittest assertion
flaky intermittent unstable sporadic
pipeline ci workflow jenkins
configuration setting option preference
staging production environment
ticket issue jira task
incident outage downtime postmortem
deadline due milestone
meeting standup appointment agenda
assign owner responsible assignee
report summary overview
frontend ui interface browser
documentation readme manual guide
"""

GROUPS: tuple[tuple[str, ...], ...] = tuple(tuple(line.split()) for line in _GROUPS.strip().splitlines())
"""One group an entry; the order means nothing."""


def related_of(stem_word: Callable[[str], str]) -> dict[str, frozenset[str]]:
    """For every stem of a word here, the stems of all its groups but itself; symmetric, never empty.

    Made anew at every call: the caller keeps it.
    """
    related: dict[str, set[str]] = {}
    for group in GROUPS:
        stems = {stem_word(word) for word in group}
        for stem in stems:
            related.setdefault(stem, set()).update(stems - {stem})
    return {stem: frozenset(others) for stem, others in related.items()}
